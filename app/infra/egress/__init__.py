"""Outgoing HTTP to addresses that clients name: never into a private network."""
