"""Cells of one question each: wide lines, rotations, savings, and those who hide and forge."""
