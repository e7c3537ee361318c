"""How requests travel: configuration, messages, retries, errors, progress."""
