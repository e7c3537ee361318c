"""Model hubs that the service follows: sources, polling, webhooks from hubs, ingestion.

Start at ``service`` (sources). ``incoming`` receives hub events, ``polling`` finds what no event
announced, ``sync_requests`` enqueues sync jobs and ``ingestion`` carries them out.
"""
