"""Queries over sources, the models of sources, and hub deliveries."""
