"""The code interpreter's containers: the replicas that hold them in sandboxes, and the way there."""
