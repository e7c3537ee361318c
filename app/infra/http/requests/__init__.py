"""The parts of a request: body and memory for it, parameters, preconditions, media types."""
