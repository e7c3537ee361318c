"""What a service says of fingerprints."""
