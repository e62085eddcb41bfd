"""Encryption of what is stored: data keys under account keys under the master key."""
