"""Subscriptions: who is told of what happens, and that they do hear of it."""
