"""Webhooks in: what hubs deliver, verified, recorded once, and turned into looks at models."""
