"""A package, so that what pytest keeps for a package is kept for these tests: their browser."""
