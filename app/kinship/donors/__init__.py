"""Donor ranking: from which models to learn, why, with which weight (section 5 of the paper)."""
