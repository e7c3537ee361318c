"""The JSON of spaces: strict requests, and answers."""
