"""What is kept, and how: SQL for the truth, files for the supports. Nothing here knows HTTP or
similarity.
"""
