"""The demo: real classifiers find their kin through the service. Run it with ``python -m demo``.

It is a user of the SDK like any other: it starts the service as a process of its own and speaks to
    it over HTTP.
"""
