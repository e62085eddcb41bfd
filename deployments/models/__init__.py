"""Language models: the contract of an engine, the replica that runs vLLM, and the way to reach it."""
