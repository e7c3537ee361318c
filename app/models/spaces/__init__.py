"""Spaces and the support sizes that their clients agree on.

Start at :mod:`app.models.spaces.service` and :mod:`app.models.spaces.support_sizes`.
"""
