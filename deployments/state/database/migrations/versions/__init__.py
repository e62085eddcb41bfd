"""One module per step; the head is the last by name."""
