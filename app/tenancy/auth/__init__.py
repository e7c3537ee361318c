"""API keys, tenants and rate limits: the identity of clients, and the limits of their requests."""
