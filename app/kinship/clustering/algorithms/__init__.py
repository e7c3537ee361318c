"""Clustering algorithms, a module each: they alone import the extra ``clustering``."""
