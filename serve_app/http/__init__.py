"""The HTTP door: who asks, how much they may, how bytes come in and answers go out."""
