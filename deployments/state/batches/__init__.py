"""Batches: their states, rows, and the work on them."""
