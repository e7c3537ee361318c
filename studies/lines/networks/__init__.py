"""The architectures that are trained: of transformers, and of a few lines of torch."""
