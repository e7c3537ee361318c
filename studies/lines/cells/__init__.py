"""Cells of no one architecture: wide lines, rotations, and what storing differences saves."""
