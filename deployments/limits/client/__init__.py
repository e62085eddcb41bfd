"""The limiter's end in each ingress replica: leases, cached keys, and the exchanges that keep both fresh."""
