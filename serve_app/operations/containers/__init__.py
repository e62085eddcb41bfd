"""The code interpreter: containers as accounts have them, and the tool that runs a model's code in them."""
