"""Which ingress replicas serve, and where each listens: how fronts find those of other nodes."""
