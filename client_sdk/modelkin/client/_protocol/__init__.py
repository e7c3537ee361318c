"""The service's API without I/O: the requests of each resource, and readers of their answers."""
