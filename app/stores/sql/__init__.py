"""The truth, in a relational database: tables, transactions, and every query, each in one place."""
