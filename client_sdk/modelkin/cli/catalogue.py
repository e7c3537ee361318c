"""The commands with their summaries, and where each is written.

A module is imported when its command runs or shows its options, so that no command waits for
another's libraries.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final, TypeAlias

from modelkin.cli.output import Answer

__all__ = ["COMMANDS", "Command", "Topic", "by_name", "command_lines", "leaves"]

Function: TypeAlias = Callable[[argparse.Namespace], Answer]


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or an action of one that has several.

    Attributes:
        name: the word that a user types.
        summary: the answer or the effect of the command, without a full stop.
        place: the module and function, ``kinship:lineage``; ``lineage_options`` adds the options.
            A module is one of ``commands``, unless its folder is named. Empty for a command of
            several actions.
        actions: the actions of the command; ``list``, if it is among them, is the default.
    """

    name: str
    summary: str
    place: str = ""
    actions: tuple[Command, ...] = ()

    def load(self) -> tuple[Callable[[argparse.ArgumentParser], None], Function]:
        """Import the function that adds the options, and the one that executes the command."""
        module_name, _, function = self.place.partition(":")
        folder = "" if "." in module_name else "commands."
        module = import_module(f"modelkin.cli.{folder}{module_name}")
        return getattr(module, f"{function}_options"), getattr(module, function)

    def action(self, name: str) -> Command | None:
        """The action of this name."""
        return next((each for each in self.actions if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """Commands that belong together, for the help."""

    title: str
    commands: tuple[Command, ...]


COMMANDS: Final = (
    Topic(
        "Files",
        (
            Command(
                "support",
                "the support of a checkpoint, written to a file",
                "supports:support",
            ),
            Command(
                "inspect",
                "what a file of modelkin or a checkpoint holds",
                "inspection:show",
            ),
            Command(
                "fingerprint",
                "the fingerprint of a checkpoint's lines, written to a file",
                "fingerprints:fingerprint",
            ),
            Command(
                "anatomy",
                "which models each tensor of a checkpoint comes from",
                "anatomy:anatomy",
            ),
            Command(
                "catalogue",
                "well-known bases in a file, which anatomies are asked of",
                actions=(
                    Command(
                        "build",
                        "read the bases of a list, and write their catalogue",
                        "bases:build_catalogue",
                    ),
                    Command("show", "the bases of a catalogue, or one of them", "bases:show"),
                    Command(
                        "import",
                        "store the fingerprints of its bases in a service",
                        "bases:import_catalogue",
                    ),
                ),
            ),
            Command(
                "subspace",
                "the subspace of samples, written to a file",
                "subspaces:subspace",
            ),
        ),
    ),
    Topic(
        "Models",
        (
            Command(
                "push",
                "store a support, a signature, a checkpoint or a folder of them",
                "push:push",
            ),
            Command("pull", "the support of a stored model, written to a file", "models:pull"),
            Command("models", "the models of a space", "models:models"),
            Command("show", "what is known of a model", "models:show"),
            Command("tag", "add and remove the tags of a model", "models:tag"),
            Command("rm", "delete models from a space", "models:rm"),
        ),
    ),
    Topic(
        "Similarity",
        (
            Command("neighbors", "the models most similar to one", "queries:neighbors"),
            Command(
                "donors",
                "the models that one may learn from, and in what proportion",
                "queries:donors",
            ),
            Command(
                "overlap",
                "two models compared exactly, tensor by tensor",
                "queries:overlap",
            ),
            Command("matrix", "the similarities of all pairs of some models", "queries:matrix"),
            Command("graph", "the nearest pairs of models in a space", "graphs:graph"),
            Command(
                "relatives",
                "the models that share lines with one, whatever their layouts",
                "relatives:relatives",
            ),
            Command(
                "duplicates",
                "models with the very same weights, in a space or in all",
                "kinship:duplicates",
            ),
        ),
    ),
    Topic(
        "Kin",
        (
            Command(
                "lineage",
                "the declared base of a model, compared with what is measured",
                "kinship:lineage",
            ),
            Command(
                "acknowledge",
                "say that what an audit finds about a model is known",
                "kinship:acknowledge",
            ),
            Command(
                "revisions",
                "the contents that a model had, and how far it drifted",
                "kinship:revisions",
            ),
            Command("cluster", "group the models of a space now, and wait", "clusters:cluster"),
            Command(
                "clusters",
                "the groups of kin in a space, by its newest clustering",
                "clusters:clusters",
            ),
            Command("assign", "the clusters that files would be in", "newcomers:assign"),
            Command(
                "advise",
                "whether a model for each group of clients pays, by their supports",
                "federation.advice:advise",
            ),
            Command(
                "start",
                "the cluster of a newcomer's data, and where it starts",
                "subspaces:start",
            ),
        ),
    ),
    Topic(
        "Values",
        (
            Command(
                "learngene",
                "layers of models, as starts for others",
                actions=(
                    Command(
                        "cut",
                        "some layers of a checkpoint, written to a file",
                        "federation.learngenes:cut",
                    ),
                    Command(
                        "average",
                        "the mean of checkpoints, tensor by tensor",
                        "federation.learngenes:average",
                    ),
                    Command(
                        "publish",
                        "a file as what a cluster starts from",
                        "federation.learngene_registry:publish",
                    ),
                    Command(
                        "show",
                        "what a cluster starts from, or all of a space",
                        "federation.learngene_registry:show",
                    ),
                ),
            ),
            Command(
                "merge",
                "averages of models that no party sees",
                actions=(
                    Command(
                        "create",
                        "settle who averages, with which weights",
                        "federation.merges:create",
                    ),
                    Command(
                        "show", "the state of a merge, or all of a space", "federation.merges:show"
                    ),
                    Command("join", "take part in a merge, to its end", "federation.merges:join"),
                    Command(
                        "plan",
                        "what an average costs, beside other methods",
                        "federation.merges:plan",
                    ),
                ),
            ),
            Command(
                "bucket",
                "the same, of parties that share a bucket or a folder alone",
                actions=(
                    Command("create", "write down who averages", "federation.buckets:create"),
                    Command("show", "the state of such a merge", "federation.buckets:show"),
                    Command("join", "take part to its end", "federation.buckets:join"),
                ),
            ),
        ),
    ),
    Topic(
        "Service",
        (
            Command(
                "spaces",
                "the index spaces of a service",
                actions=(
                    Command("list", "the spaces, by name", "service.spaces:list_all"),
                    Command("show", "what is known of a space", "service.spaces:show"),
                    Command("create", "make a space", "service.spaces:create"),
                    Command("rm", "delete a space and all its models", "service.spaces:remove"),
                    Command(
                        "publish", "let other tenants ask a space", "service.publication:publish"
                    ),
                    Command("withdraw", "let them ask it no more", "service.publication:withdraw"),
                    Command(
                        "public",
                        "the public spaces of all tenants",
                        "service.publication:list_all",
                    ),
                    Command("ask", "the models of one near to a file", "service.publication:ask"),
                ),
            ),
            Command(
                "jobs",
                "what the service does after it has answered",
                actions=(
                    Command("list", "the jobs, those that failed first", "service.jobs:list_all"),
                    Command("show", "one job, with its result or its error", "service.jobs:show"),
                    Command("wait", "wait until a job has ended", "service.jobs:wait"),
                    Command("cancel", "ask for the end of a job", "service.jobs:cancel"),
                ),
            ),
            Command(
                "sources",
                "the hubs whose models spaces follow",
                actions=(
                    Command("list", "the sources, with their state", "service.sources:list_all"),
                    Command("add", "follow the models of a hub", "service.sources:add"),
                    Command("poll", "compare a hub with the space now", "service.sources:poll"),
                    Command(
                        "events", "what a hub has sent, with the outcome", "service.sources:events"
                    ),
                    Command(
                        "remove", "stop following a hub; models stay", "service.sources:remove"
                    ),
                ),
            ),
            Command(
                "subscriptions",
                "where the service sends events",
                actions=(
                    Command(
                        "list",
                        "the subscriptions, with their state",
                        "service.subscriptions:list_all",
                    ),
                    Command("add", "send events to a URL", "service.subscriptions:add"),
                    Command("ping", "send a test event now", "service.subscriptions:ping"),
                    Command(
                        "deliveries",
                        "what was sent, and what was answered",
                        "service.subscriptions:deliveries",
                    ),
                    Command("replay", "send a delivery again", "service.subscriptions:replay"),
                    Command(
                        "remove", "send no more events to a URL", "service.subscriptions:remove"
                    ),
                ),
            ),
            Command(
                "keys",
                "the API keys of your tenant",
                actions=(
                    Command("list", "the keys, with their last use", "service.keys:list_all"),
                    Command("create", "make a key, and show it this once", "service.keys:create"),
                    Command("revoke", "let a key open nothing any more", "service.keys:revoke"),
                ),
            ),
            Command(
                "report",
                "what is new and what was found of all models, made now",
                "service.reports:make",
            ),
            Command(
                "reports",
                "the reports that were made, and when the next is",
                actions=(
                    Command("list", "the reports, the newest first", "service.reports:list_all"),
                    Command("show", "a report's first lines, or a file", "service.reports:show"),
                    Command(
                        "schedule", "have reports made by themselves", "service.reports:schedule"
                    ),
                    Command("badge", "a picture for a model's page", "service.reports:badge"),
                    Command("rm", "delete a report", "service.reports:remove"),
                ),
            ),
            Command("serve", "run the service; its flags and commands follow", "serve:serve"),
            Command("doctor", "what is wrong with a set-up, and what to do", "doctor:doctor"),
            Command(
                "completion",
                "a script that completes commands in a shell",
                "completion:completion",
            ),
        ),
    ),
)
"""All commands, by topic, in the order of the help."""


def by_name() -> dict[str, Command]:
    """The commands by their names."""
    return {command.name: command for topic in COMMANDS for command in topic.commands}


def leaves() -> Iterator[tuple[str, Command]]:
    """The commands that do something, with all words of their names."""
    for command in by_name().values():
        if not command.actions:
            yield command.name, command
        for action in command.actions:
            yield f"{command.name} {action.name}", action


def command_lines(commands: tuple[Command, ...]) -> str:
    """Lines with the name and the summary of each command."""
    width = max(len(command.name) for command in commands)
    return "\n".join(f"  {each.name.ljust(width)}  {each.summary}" for each in commands)
