"""From a request and its stored conversation to a turn: history, attachments, tools, and the chat for the model."""
