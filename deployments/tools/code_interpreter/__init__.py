"""The code interpreter: replicas that hold containers in sandboxes, and their client."""
