"""Webhooks from hubs: verified, recorded once, turned into sync jobs."""
