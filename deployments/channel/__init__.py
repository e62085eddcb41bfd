"""The side channel: carries requests to another process without Ray, and streams the answers back.

Ingress replicas and batch workers reach model replicas, code interpreters and the gatekeeper over it. One connection
per pair of processes carries all requests between them; all output of one turn of the event loop goes in one write.
"""
