"""Outgoing webhooks: subscriptions, the outbox of events, and deliveries with retries."""
