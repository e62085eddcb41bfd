"""Parses the bytes of a body into a value of its schema, or into the error for the client."""
