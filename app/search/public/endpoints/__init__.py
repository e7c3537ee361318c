"""HTTP of public spaces: the owner's settings, and other tenants' queries."""
