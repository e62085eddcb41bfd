"""What a tool is to a response: the contract, approvals and look-ups."""
