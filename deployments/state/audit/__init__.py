"""The audit log: who changed keys and configuration."""
