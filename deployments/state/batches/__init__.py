"""Batches: their states and rows, the store for accounts, and the work of coordinators."""
