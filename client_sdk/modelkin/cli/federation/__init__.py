"""The commands about learngenes, merges, subspaces and newcomers."""
