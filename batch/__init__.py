"""The offline front door: batches of requests that run beside the online traffic."""
