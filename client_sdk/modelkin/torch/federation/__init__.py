"""Federated learning on tensors: averages of ranks, penalties, and layers to share."""
