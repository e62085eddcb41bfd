"""Containers of the code interpreter, as rows."""
