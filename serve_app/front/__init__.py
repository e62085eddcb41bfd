"""The front: HAProxy before the ingress replicas, run and fed by Manta itself, outside of Ray.

`manta front` and `manta serve` start the supervisor. It keeps two HAProxy processes on one port, and the agent that
fills their tables. Neither Ray nor the agent nor the supervisor has to live for the port to answer.
"""
