"""Donors, lineage and coverage over supports."""
