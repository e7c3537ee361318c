"""The namespaces of a client, one for each resource of the service."""
