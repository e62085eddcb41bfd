"""How the database came to its tables, step by step (alembic)."""
