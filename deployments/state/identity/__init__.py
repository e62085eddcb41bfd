"""API keys, their holders (principals), and tiers."""
