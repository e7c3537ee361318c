"""LSH buckets behind one contract, ``protocol.Buckets``: memory, SQL and Redis.

Start at :mod:`app.models.index.buckets.service`, which a search calls, and at the contract.
"""
