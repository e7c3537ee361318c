"""Clusterings: groups of kin, found by jobs, with ids that last; and the policies that renew them.

``service`` has the use cases, ``policy`` says when a space is clustered anew. Below them ``asked``
knows the parameters, ``snapshot`` what is clustered, ``compared`` how near its models are and
``judge`` which of several clusterings is best. An algorithm each is in ``affinity``,
``agglomerative``, ``density`` and ``graph``: they alone touch the libraries of the extra
``clustering``.
"""
