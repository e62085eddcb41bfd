"""The model replica: vLLM's engine behind the side channel. Nothing else imports vLLM."""
