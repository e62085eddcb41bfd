"""The events of a response, and the response object as they build it."""
