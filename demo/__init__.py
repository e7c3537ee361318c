"""The demo: real classifiers find their kin through the service. Run it with ``python -m demo``.

It uses the SDK as any user does: it starts the service as a separate process and calls it over
HTTP.
"""
