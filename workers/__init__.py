"""The workers: they carry out jobs durably, outside the requests that enqueue them."""
