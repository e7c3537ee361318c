"""What both clients need to send: configuration, messages, retries, errors and concurrency."""
