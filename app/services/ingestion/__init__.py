"""Ingestion: a model of a hub becomes a model here, by a job, with nobody at the keyboard."""
