"""The search index of vector stores."""
