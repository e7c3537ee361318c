"""The commands about learngenes and merges."""
