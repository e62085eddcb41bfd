"""Vector stores, their files, and the work of indexing them."""
