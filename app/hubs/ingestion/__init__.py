"""Ingestion: a job that turns a model of a hub into a model of a space."""
