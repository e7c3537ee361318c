"""Catalogues of checkpoints: of those on this machine's disks, and on a Hugging Face hub."""
