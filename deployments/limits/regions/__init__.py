"""Limits across regions: each gatekeeper owns a share of every limit, and lends what it does not need to the others."""
