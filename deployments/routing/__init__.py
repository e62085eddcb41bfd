"""How Ray Serve scales replicas and chooses among them, for models and for tools."""
