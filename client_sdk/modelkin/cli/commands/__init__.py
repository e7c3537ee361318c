"""The commands about models, spaces, data subspaces, newcomers, hubs and the service."""
