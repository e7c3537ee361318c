"""What uploads need beside their calls: batches, caches, journals and orders."""
