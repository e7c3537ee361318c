"""Readers of data sets that come as files: IDX, CIFAR's binary rows, and folders of texts.

A file is data of a stranger. Each reader checks it, allocates no more than the file has, and
raises :class:`studies.loaders.folder.DataError` where it is not what its name says.
"""
