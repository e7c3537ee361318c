"""The namespaces of a client: what the service has, resource by resource."""
