"""From the bytes of a body to a value of its schema, or to the refusal that says what is wrong with it."""
