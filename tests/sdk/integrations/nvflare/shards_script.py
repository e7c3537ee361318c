"""A site's script whose model nobody sees; it leaves what it trained in a folder, for the test."""

from __future__ import annotations

import sys

import nvflare.client as flare
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from modelkin.integrations.nvflare import ClusterClient, ShardClient
from modelkin.torch import fisher_importance
from tests.support.federations.two_kinds import examples, fit, mlp


def main() -> None:
    """Train in each round, on what this site holds."""
    torch.set_num_threads(1)
    flare.init()
    name, folder = flare.get_site_name(), sys.argv[1]
    node = int(name.removeprefix("site-"))
    (inputs, labels), model = examples(node), mlp()
    client = ClusterClient(shards=ShardClient())
    for number, received in enumerate(client.trainings(), start=1):
        model.load_state_dict(received.params)
        client.hand_over(fisher_importance(model, cross_entropy, [(inputs, labels)]))
        fit(model, inputs, labels)
        save_file(model.state_dict(), f"{folder}/{number}-{name}.safetensors")
        meta = {"NUM_STEPS_CURRENT_ROUND": 10 + node}
        client.send(flare.FLModel(params=model.state_dict(), meta=meta))


if __name__ == "__main__":
    main()
