"""What the service says about itself: the OpenAPI document, the API reference at /docs, and the guides."""
