"""The side channel: how the pieces of an answer travel from a model replica to an ingress replica.

One connection per pair of replicas carries every request between them. What a replica produces in one step
of its engine, for however many requests, leaves in one write. It knows nothing of models or of HTTP.
"""
