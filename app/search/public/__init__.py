"""Public spaces: the queries that a space's owner allows other tenants, with coarse answers."""
