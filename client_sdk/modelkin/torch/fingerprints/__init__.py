"""Fingerprints of models in memory, made on the device where their tensors lie."""
