"""The rate limiter: the gatekeeper, and how ingress replicas share it."""
