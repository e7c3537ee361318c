"""The command ``subscriptions``: where the service sends events, and the receivers' answers."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Final

from modelkin._terminal_text import one_line
from modelkin.cli.confirmation import confirm
from modelkin.cli.options import add_confirmation, add_limit, add_service, first_rows, usual_space
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import state_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.types.webhooks import Delivery, Subscription

__all__ = [
    "add",
    "add_options",
    "deliveries",
    "deliveries_options",
    "list_all",
    "list_all_options",
    "ping",
    "ping_options",
    "remove",
    "remove_options",
    "replay",
    "replay_options",
]

_LOOKED_THROUGH: Final = 10_000
"""The most deliveries that a search for an id reads."""


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions list``."""
    add_service(parser, space="only those of this index space", required=False)
    add_limit(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions add``."""
    parser.add_argument("receiver", metavar="URL", help="the address of the receiver")
    parser.add_argument(
        "--event",
        action="append",
        required=True,
        metavar="TYPE",
        help="support.stored, neighbors.changed, clustering.completed, lineage.mismatch, ...; "
        "repeats",
    )
    add_service(
        parser, space="only events of this index space; else MODELKIN_SPACE", required=False
    )
    parser.add_argument(
        "--all-spaces",
        action="store_true",
        help="send events of all spaces, whatever MODELKIN_SPACE is",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="only events about this model; of neighbors.changed its pairs alone",
    )
    parser.add_argument("--tag", metavar="TAG", help="only events about models with this tag")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="S",
        help="the similarity that a pair crosses, for neighbors.changed",
    )
    parser.add_argument("--description", metavar="TEXT", help="a note")


def ping_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions ping``."""
    _add_subscription(parser)


def deliveries_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions deliveries``."""
    _add_subscription(parser)
    parser.add_argument("--state", choices=("pending", "succeeded", "failed"))
    add_limit(parser)


def replay_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions replay``."""
    _add_subscription(parser)
    parser.add_argument(
        "delivery", metavar="DELIVERY", help="the delivery's id, as `deliveries` shows it"
    )


def remove_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``subscriptions remove``."""
    _add_subscription(parser)
    add_confirmation(parser)


def _add_subscription(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subscription", metavar="ID", help="the subscription's id, as `subscriptions` shows it"
    )
    add_service(parser, space=None)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions``: the subscriptions, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        listed = (s for s in client.webhooks.list() if arguments.space in {None, s.space})
        found, more = first_rows(listed, arguments)
    columns = ("ID", "URL", "EVENTS", "SPACE", "STATE", "LAST SUCCESS", "LAST FAILURE")
    text = table(columns, map(_row, found)) + more if found else "no subscriptions"
    return Answer(text, {"items": [fields_of(each) for each in found]})


def add(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions add``: subscribe a URL; its secret is shown this once."""
    if arguments.all_spaces and arguments.space is not None:
        raise InvalidParameter("give --space or --all-spaces, not both", field="space")
    known = arguments.space or usual_space()
    with Client(arguments.url, arguments.api_key) as client:
        made = client.webhooks.create(
            arguments.receiver,
            arguments.event,
            space=None if arguments.all_spaces else known,
            model=arguments.model,
            tag=arguments.tag,
            threshold=arguments.threshold,
            description=arguments.description,
        )
    summary = {
        "subscription": made.id,
        "url": made.url,
        "events": ", ".join(made.events),
        "space": made.space or "all spaces",
        "secret": text_or_dash(made.secret),
    }
    return Answer(pairs(summary), fields_of(made))


def ping(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions ping``: send a test event."""
    with Client(arguments.url, arguments.api_key) as client:
        made = client.webhooks.ping(arguments.subscription)
    answer = "`modelkin subscriptions deliveries` shows the answer"
    text = one_line(f"delivery {made.id}, {made.state}: {answer}")
    return Answer(text, fields_of(made))


def deliveries(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions deliveries``: the deliveries of a subscription, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        listed = client.webhooks.deliveries(arguments.subscription, state=arguments.state)
        found, more = first_rows(listed, arguments)
    columns = ("DELIVERY", "TYPE", "MODEL", "STATE", "ATTEMPTS", "CREATED", "NEXT", "LAST ANSWER")
    text = table(columns, map(_delivery_row, found)) + more if found else "no deliveries"
    return Answer(text, {"items": [fields_of(each) for each in found]})


def replay(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions replay``: send a delivery again."""
    with Client(arguments.url, arguments.api_key) as client:
        listed = islice(client.webhooks.deliveries(arguments.subscription), _LOOKED_THROUGH)
        found = next((each for each in listed if each.id == arguments.delivery), None)
        if found is None:
            raise InvalidParameter(
                f"subscription {arguments.subscription} has no delivery {arguments.delivery}: "
                f"`modelkin subscriptions deliveries {arguments.subscription}` lists them"
            )
        made = client.webhooks.replay(found)
    return Answer(one_line(f"delivery {made.id}, {made.state}"), fields_of(made))


def remove(arguments: argparse.Namespace) -> Answer:
    """``modelkin subscriptions remove``: delete a subscription with its pending deliveries."""
    confirm(
        arguments,
        f"delete subscription {arguments.subscription} with its secret and pending deliveries",
    )
    with Client(arguments.url, arguments.api_key) as client:
        client.webhooks.delete(arguments.subscription)
    name = arguments.subscription
    return Answer(f"{name}: removed", {"subscription": name})


def _row(each: Subscription) -> tuple[str, ...]:
    return (
        each.id,
        each.url,
        ", ".join(each.events),
        text_or_dash(each.space),
        state_text("enabled" if each.enabled else "disabled"),
        time_text(each.last_success_at),
        text_or_dash(each.last_failure),
    )


def _delivery_row(each: Delivery) -> tuple[str, ...]:
    last = each.log[-1] if each.log else None
    answer = None if last is None else last.detail
    if last is not None and last.status is not None and not last.detail.startswith("answered "):
        answer = f"{last.status}, {last.detail}"
    return (
        each.id,
        each.type,
        text_or_dash(each.model),
        state_text(each.state),
        str(each.attempts),
        time_text(each.created_at),
        time_text(each.next_attempt_at),
        text_or_dash(answer),
    )
