"""How an engine goes on with an answer that another one began."""
