"""Safety policies and moderations."""
