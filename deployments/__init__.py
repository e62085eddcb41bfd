"""Everything that runs as a Ray process of its own, and the contracts for talking to it."""
