"""Averages in shards: who gets which part of an update, what is sent of it, and how it is averaged.

Pure: arrays in, arrays out. ``sharing`` beside it seals what travels, and carriers move it.
"""
