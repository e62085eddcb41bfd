"""Safety policies: what breaks one, and how a stream is held back while it is checked."""
