"""Clusterings: groups of kin, made by jobs, with ids that last, and the policies that renew them.

Start at ``service``. ``request`` holds the parameters, ``snapshot`` the models to cluster,
``distances`` their distances, ``pipeline`` the steps from a snapshot to clusters.
"""
