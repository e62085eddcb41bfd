"""What built-in tools need outside of the ingress: sandboxes and the replicas that hold them."""
