"""The in-process signature index: what a scan reads. Derived from the database, lost and rebuilt at
will.
"""
