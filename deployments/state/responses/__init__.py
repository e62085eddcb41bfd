"""Stored responses, background responses and conversations."""
