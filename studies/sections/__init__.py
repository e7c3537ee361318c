"""The sections of the pages of evidence."""
