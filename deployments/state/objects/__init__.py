"""The object store, a folder or a bucket."""
