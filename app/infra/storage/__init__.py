"""Stores beside the database: blobs in files, Redis, encrypted secrets."""
