"""Learngenes: versioned starting points of clusters. Their values stay in the owners' hubs, unless
the operator keeps some.
"""
