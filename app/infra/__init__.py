"""Infrastructure below the features: database, storage, egress, HTTP, refusals, deadlines."""
