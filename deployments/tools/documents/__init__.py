"""Documents read and cut into chunks, in a process with limits."""
