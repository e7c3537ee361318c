"""Subjects that ask a running service."""
