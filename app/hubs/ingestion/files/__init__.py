"""Files of a hub: which of them are a checkpoint, and how they come, whole or by ranges."""
