"""The commands about what a service keeps beside models: spaces, jobs, hubs, receivers and keys."""
