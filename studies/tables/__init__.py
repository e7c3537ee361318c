"""The studies behind the paper's tables, each from a setting to its figures, and to its section."""
