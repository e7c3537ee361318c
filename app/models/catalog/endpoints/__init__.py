"""HTTP endpoints of models, supports, signatures, sketches, batches and revisions."""
