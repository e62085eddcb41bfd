"""A Python interpreter for hostile code: isolated by bubblewrap, and bounded in all that it uses."""
