"""Fan-out of events to webhook subscriptions, and the neighbour changes that are events."""
