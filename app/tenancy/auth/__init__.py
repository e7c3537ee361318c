"""API keys, tenants and rate limits: who a client is, and how often it may ask."""
