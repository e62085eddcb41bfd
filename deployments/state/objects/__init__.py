"""The object store, a directory or a bucket."""
