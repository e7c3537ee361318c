"""Background jobs: the jobs table as a queue, the service that enqueues, the endpoints."""
