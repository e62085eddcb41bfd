"""Files: their rows in the database, and their content in the object store."""
