"""Fingerprints of checkpoints by model name, whatever space or layout: stored, listed, found."""
