"""The search over files: text from documents, chunks of it, and the index. Knows neither HTTP nor the database."""
