"""The rows of the code interpreter's containers."""
