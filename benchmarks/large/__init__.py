"""The space of many models: bytes of rows, buckets and indexes, and a calculation for more."""
