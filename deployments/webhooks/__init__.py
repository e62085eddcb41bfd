"""Webhooks: signed requests that tell the endpoints of accounts what has happened."""
