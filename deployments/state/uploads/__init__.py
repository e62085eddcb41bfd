"""Uploads: files that come in parts, until they are complete."""
