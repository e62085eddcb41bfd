"""From a request and what is stored to a turn: history, attachments, tools, and the chat that the model sees."""
