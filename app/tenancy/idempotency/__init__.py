"""Idempotency keys: a request that is sent again gets the answer of the first one."""
