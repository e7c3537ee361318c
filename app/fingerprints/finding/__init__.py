"""The finding index: which fingerprints of a tenant have keys in common with another."""
