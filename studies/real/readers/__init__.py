"""Readers of foreign weight formats, each a function of bytes.

None runs what it reads. A file that is not what it should be raises
:class:`studies.real.errors.InvalidFile`. Memory stays within a few times the size of the file.
"""
