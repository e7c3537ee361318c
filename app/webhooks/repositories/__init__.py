"""SQL of subscriptions, events and deliveries."""
