"""The commands about models, spaces, hubs and their service."""
