"""The paper's evidence, made again: each table from clients' data to answers of a service.

Supports go up to a service that the command starts, and every neighbour, matrix, cluster and donor
comes back over HTTP. What stands beside them, such as cosines, is computed here.
"""
