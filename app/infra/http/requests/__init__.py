"""The parts of a request: its body within a budget of memory, its parameters and preconditions."""
