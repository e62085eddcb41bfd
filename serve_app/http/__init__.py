"""What every HTTP request passes: middleware, keys, admission, and the streams of answers."""
