"""The forms of a report: a page, a table, a bill of materials; and the badge of a model."""
