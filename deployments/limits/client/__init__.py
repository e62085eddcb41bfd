"""The limiter's end in each ingress replica: leases, cached keys, and the syncs that keep both fresh."""
