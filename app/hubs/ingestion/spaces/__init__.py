"""The spaces of a source: their names, and how they are found or made."""
