"""Fingerprints: from which models the tensors of a checkpoint come, whatever its layout.

A matrix is a pile of *lines*: its rows, and its columns. What hubs do to a file, such as renaming,
fusing, splitting, transposing or dropping layers, moves lines about and seldom touches one. So each
line has a *key*, and equal keys are one line, wherever it stands.
"""
