"""In-memory stand-ins that keep the contracts of `deployments`, for tests without processes."""
