"""HTTP endpoints of neighbours, overlaps and matrices."""
