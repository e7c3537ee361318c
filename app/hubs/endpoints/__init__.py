"""HTTP endpoints of sources and of webhooks from hubs."""
