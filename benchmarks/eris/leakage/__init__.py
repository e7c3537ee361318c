"""What each method learns against what its receiver can say of who was in.

Clients and canaries are those of the membership's figures. Every receiver is attacked by the same
scores, on no more than it has; the best one counts.
"""
