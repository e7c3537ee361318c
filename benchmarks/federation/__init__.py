"""Federations of small networks: how clients weigh, and what else a round decides.

Rules of a round are the product's; what they are compared with is here alone. Data are
scikit-learn's digits or drawn, so figures rank nothing on harder data.
"""
