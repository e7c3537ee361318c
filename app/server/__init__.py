"""Server processes: uvicorn, its supervisor and the embedded worker."""
