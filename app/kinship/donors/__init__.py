"""Donor ranking: the models to learn from, with reasons and weights (section 5 of the paper).

Start at :mod:`app.kinship.donors.service`; each method ranks in a module of its own.
"""
