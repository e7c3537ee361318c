"""SQL of spaces, their layouts, and the support sizes that clients agree on."""
