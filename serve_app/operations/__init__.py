"""Operations: from a validated body to an outcome, for HTTP requests and batches alike."""
