"""Continues an answer that another engine began."""
