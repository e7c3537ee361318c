"""Lines of trained networks: small ones are trained here, changed as hubs change them, and found.

What is measured is ``modelkin.core.fingerprints`` alone: how many lines of a derivative are found
in its base, whether each tensor has its source at the right place, and what strangers have in
common beside what chance explains.
"""
