"""The use cases: what a request means, told without HTTP. Services are given a transaction and
never make one.
"""
