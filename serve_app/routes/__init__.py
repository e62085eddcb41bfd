"""The endpoints, one module for each resource, with the bodies that only they use."""
