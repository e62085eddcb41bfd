"""Checks a Serve file before anything starts, and describes it for editors."""
