"""The networks that clients train."""
