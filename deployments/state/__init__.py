"""What outlives a process, in one database and one object store: keys, files, batches, responses, stores, usage."""
