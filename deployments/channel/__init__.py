"""The side channel: how requests that must not wait for Ray travel to one process, and their answers back in pieces.

To model replicas, code interpreters and the gatekeeper. One connection per pair of processes carries every request
between them. What is produced in one turn, for however many requests, leaves in one write. It knows nothing of
models or of HTTP.
"""
