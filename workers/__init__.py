"""The workers: jobs carried out durably, apart from the requests that made them."""
