"""JSON schemas are compiled once outside of the engine, within a budget of time and memory."""
