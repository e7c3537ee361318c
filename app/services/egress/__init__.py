"""The way out: connections to addresses that somebody else named, never to our own network."""
