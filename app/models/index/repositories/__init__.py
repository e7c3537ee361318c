"""SQL of the index: changes to follow, epochs of buckets, segments of sketches."""
