"""Donor ranking: from which models to learn, why, with which weight (section 5 of the paper).

Start at :mod:`app.kinship.donors.service`; each method ranks in a module of its own.
"""
