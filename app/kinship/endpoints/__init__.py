"""HTTP endpoints of donors, graphs and lineages."""
