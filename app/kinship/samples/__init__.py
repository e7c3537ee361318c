"""Samples: small models of random weights, whose kinship is known, for a service without models."""
