"""The asynchronous client."""
