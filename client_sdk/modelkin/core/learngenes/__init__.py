"""Learngenes: the layers that members of a cluster share, as a start for newcomers."""
