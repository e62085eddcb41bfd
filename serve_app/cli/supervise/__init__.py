"""`manta serve`: starts the service's processes, waits until they are ready, and stops them."""
