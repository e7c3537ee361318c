"""Evidence for data subspaces and learngenes: planted clients, baselines, tables."""
