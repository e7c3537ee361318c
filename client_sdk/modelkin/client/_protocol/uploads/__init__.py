"""The parts of uploads beside their calls: batches, caches, journals and orders."""
