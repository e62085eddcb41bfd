"""Pages for operators; `routes` lets only admin keys in."""
