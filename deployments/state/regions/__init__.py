"""Regions: clusters that serve the same accounts from one database."""
