"""A Python interpreter that may be given hostile code: bubblewrap around it, bounds on all it takes."""
