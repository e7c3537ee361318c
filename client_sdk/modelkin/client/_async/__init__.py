"""The asynchronous client. ``client_sdk/unasync.py`` generates ``_sync`` from this folder."""
