"""LSH buckets behind one port, :class:`app.stores.ports.Buckets`: memory, SQL and Redis."""
