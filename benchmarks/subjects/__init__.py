"""Subjects of the benchmarks: each module measures one and has ``run(quick)``."""
