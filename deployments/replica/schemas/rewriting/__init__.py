"""Rewrites JSON schemas into the few forms that the engine's grammars keep, and refuses by name what has none."""
