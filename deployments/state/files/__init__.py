"""Files: their rows and their content."""
