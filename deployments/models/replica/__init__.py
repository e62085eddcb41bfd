"""What runs inside a model replica: the only place that knows vLLM."""
