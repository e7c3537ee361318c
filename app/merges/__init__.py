"""Merges: parties average their models through the service, which cannot open their cells."""
