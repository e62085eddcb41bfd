"""The record of each request, on its way into the logs and the metrics. Never content."""
