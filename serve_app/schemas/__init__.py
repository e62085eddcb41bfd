"""What clients may send and what they get, one module per resource; says nothing of HTTP or engines."""
