"""The inner loops, each twice: ``reference`` in numpy and ``fast`` in numba.

Both modules define the same functions and give bit-identical answers; ``choice`` says which one
runs. Kernels take and return arrays and validate nothing: what reaches them was checked by the
domain above.
"""
