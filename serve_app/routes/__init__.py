"""The endpoints: one file per resource of the interface, each function short enough to read at a glance."""
