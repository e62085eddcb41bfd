"""The HTTP front door, and the operations that both doors share."""
