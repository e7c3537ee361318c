"""A federation of clinics whose scanners turn the same digits in three ways."""
