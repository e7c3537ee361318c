"""Tenants: keys and rate limits, quotas, and the answers that a repeated request gets again."""
