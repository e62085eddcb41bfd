"""The limiter's client in each ingress replica: leases, cached keys, and the syncs that refresh both."""
