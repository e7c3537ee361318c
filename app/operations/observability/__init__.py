"""Logs, metrics, request logging and health endpoints."""
