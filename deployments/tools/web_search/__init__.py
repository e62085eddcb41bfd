"""Searches the web and reads its pages as text. Knows nothing of responses."""
