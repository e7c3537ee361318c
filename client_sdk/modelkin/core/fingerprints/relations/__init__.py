"""Relations: what a checkpoint is to given models, in sentences."""
