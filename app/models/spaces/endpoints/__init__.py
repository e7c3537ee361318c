"""HTTP endpoints of spaces, and of the support sizes that their clients agree on."""
