"""Hubs: where models are published, read through one small contract and nothing else."""
