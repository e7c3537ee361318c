"""Services on each database, and a hub for them to follow."""

from tests.app.conftest import backend, client, http, postgres, server, servers, space, start
from tests.app.hubs.conftest import hub

__all__ = ["backend", "client", "http", "hub", "postgres", "server", "servers", "space", "start"]
