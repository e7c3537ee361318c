"""The JSON of clusterings: strict requests, and answers."""
