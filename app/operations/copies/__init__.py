"""Copies of the service's data, and the proof that one is whole."""
