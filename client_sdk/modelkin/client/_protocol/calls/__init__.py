"""A request from its parts to its answer, without I/O."""
