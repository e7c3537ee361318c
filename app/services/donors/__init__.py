"""Donors: from which models one may learn, why, and in what proportion (section 5 of the paper)."""
