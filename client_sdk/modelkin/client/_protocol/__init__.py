"""The service's API without I/O: the requests of each resource, and how their answers are read."""
