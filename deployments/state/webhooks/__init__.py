"""Webhook endpoints, and the events that are on their way to them."""
