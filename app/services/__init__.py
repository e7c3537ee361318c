"""The use cases: what a request means, without HTTP. Transactions are given to them."""
