"""Stored responses and conversations, as the responses interface needs them."""
