"""The engine's scheduler: interactive requests go first, and batch lines use what they leave."""
