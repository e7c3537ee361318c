"""Clients of model hubs, behind the contract in ``protocol``."""
