"""Public spaces: what the owner of a space lets other tenants ask of it, and how coarsely."""
