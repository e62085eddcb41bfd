"""Models: their configuration, the contract of their engines, and how other processes reach them."""
