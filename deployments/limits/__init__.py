"""The rate limiter: the gatekeeper, an actor with the account of all keys, and its client in each ingress replica."""
