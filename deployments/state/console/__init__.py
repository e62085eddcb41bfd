"""Sessions of the console, one-time links that open one, and failed sign-ins."""
