"""Which models are kin: line fingerprints beside the Model Provenance Kit and a cosine of weights.

All answer about the same pairs of files: strangers, and what hubs make of a model.
"""
