"""Families of published checkpoints whose kin are documented, or which are known not to be kin.

Each module has NAME, and ``figures``, which reads its packages and asks the service.
"""
