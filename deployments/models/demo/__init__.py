"""Models that need no network."""
