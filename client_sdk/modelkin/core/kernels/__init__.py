"""The inner loops, each twice: ``reference`` in numpy and ``fast`` compiled by numba.

Both modules define the same functions and give bit-identical answers; ``choice`` says which one
runs. Signatures, retrieval and others have modules of their own in each, such as ``minhash`` and
``search``. Kernels take and return arrays and validate nothing: the domain above has checked what
reaches them.
"""
