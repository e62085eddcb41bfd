"""Anthropic's Messages interface, which Claude Code and other clients speak."""
