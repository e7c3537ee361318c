"""Queries for reports: what they are made from, those that are stored, and their policies."""
