"""How a background response goes on after its process has ended."""
