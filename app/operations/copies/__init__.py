"""Copies of the service's data, and the proof that a copy is whole."""
