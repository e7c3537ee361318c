"""Maps: a space's models in the plane, near ones near each other, drawn by jobs.

Start at ``service``. ``pipeline`` has the steps from a snapshot to places, ``coloring`` the groups
by which a page colours them.
"""
