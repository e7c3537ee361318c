"""Value types that the client returns and the service shares."""
