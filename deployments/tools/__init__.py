"""The tools that the service runs itself: each a package without HTTP, models or storage, over sandbox and outbound."""
