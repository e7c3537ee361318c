"""Spaces and the support sizes that their clients agree on.

Start at :mod:`app.spaces.service` and :mod:`app.spaces.support_sizes`.
"""
