"""The inbox: what of a tenant's models asks for a look, counted, with the newest of each."""
