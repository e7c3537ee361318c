"""The domain, pure: supports, signatures and overlaps as arrays in and arrays out.

It never does I/O and never imports torch, HTTP or the wire.
"""
