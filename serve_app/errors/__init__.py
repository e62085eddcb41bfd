"""The errors that clients get, and how failures below become such errors."""
