"""Queries over models, revisions, sketches and search candidates."""
