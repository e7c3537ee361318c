"""What many models take: bytes of rows, buckets and indexes, and a calculation for more."""
