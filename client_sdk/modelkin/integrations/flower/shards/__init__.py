"""Averages in shards over Flower."""
