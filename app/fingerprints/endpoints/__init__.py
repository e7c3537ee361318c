"""/v1/fingerprints: fingerprints of model names, one by one and many at a time."""
