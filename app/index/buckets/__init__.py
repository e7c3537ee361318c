"""LSH buckets behind one contract, ``protocol.Buckets``: memory, SQL and Redis."""
