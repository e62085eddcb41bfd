"""The tools of a response: their contract, approvals, and those of one request."""
