"""The in-process signature index: derived from the database, rebuilt at will."""
