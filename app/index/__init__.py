"""The in-process signature index and the LSH buckets, both derived from the database."""
