"""Quotas: how much of each thing a tenant may have."""
