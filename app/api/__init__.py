"""The HTTP edge: routes, bodies, media types and status codes. It decides nothing about models."""
