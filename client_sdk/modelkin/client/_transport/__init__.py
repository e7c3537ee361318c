"""Parts of both clients for sending: configuration, messages, retries, errors, concurrency."""
