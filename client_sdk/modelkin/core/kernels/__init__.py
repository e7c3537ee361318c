"""The inner loops, each twice: ``reference`` in numpy and ``fast`` compiled by numba.

Both modules define the same functions and give bit-identical answers; ``choice`` says which one
runs. Signatures and retrieval have modules of their own behind each (``fast_minhash``,
``fast_search``). Kernels take and return arrays and validate nothing: what reaches them was checked
by the domain above.
"""
