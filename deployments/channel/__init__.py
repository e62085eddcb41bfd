"""The side channel: carries requests to another process without Ray, and streams the answers back.

It leads to model replicas, code interpreters and the gatekeeper. One connection per pair of processes carries all
requests between them. All output of one turn of the event loop is sent in one write. Knows neither models nor HTTP.
"""
