"""The relational database: engines, transactions, migrations and the tables."""
