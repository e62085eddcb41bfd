"""What an engine is asked and what it answers; all that operations know of a model."""
