"""HTTP of public spaces: how a space is public, and what others may ask of it."""
