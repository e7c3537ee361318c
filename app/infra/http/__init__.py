"""HTTP helpers that all endpoints share: bodies, problems, media types, OpenAPI."""
