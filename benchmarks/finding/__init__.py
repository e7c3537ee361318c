"""The finding index of fingerprints at the sizes of hubs, by made keys."""
