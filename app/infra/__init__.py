"""Infrastructure below the features: database, storage, egress and HTTP helpers."""
