"""`manta serve`: starts the processes of the service, waits until they are ready, and stops them."""
