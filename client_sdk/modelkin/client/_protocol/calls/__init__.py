"""Calls: requests, their parts and their answers, without I/O."""
