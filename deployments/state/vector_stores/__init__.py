"""Vector stores, their files, and the work of indexing them; the index itself is in `deployments.tools`."""
