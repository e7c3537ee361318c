"""Measure what modelkin costs, beside its alternatives: ``python -m benchmarks``.

Every subject is a module with the ``LIBRARIES`` that its figures depend on and ``run(quick) ->
Findings``; ``SUBJECTS`` in ``__main__`` lists them. Nothing of the product imports this package.
"""
