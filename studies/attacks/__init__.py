"""Attacks on the inputs of clients, by what aggregators in shards see."""
