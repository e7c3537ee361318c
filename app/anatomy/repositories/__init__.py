"""Queries for anatomies beside those of ``repository``: lists for people."""
