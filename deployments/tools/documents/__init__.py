"""Reads documents and cuts them into chunks, in bounded processes."""
