"""The API without I/O: which request each call sends, and how its answer is read."""
