"""The commands about files, models, similarity and kin, and about this machine."""
