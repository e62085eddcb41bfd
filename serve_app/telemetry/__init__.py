"""What is known of requests, and where it goes: the logs and the metrics. Never content."""
