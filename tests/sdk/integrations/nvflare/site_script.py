"""A site's script in NVFlare's simulator; one sends another layout, and one dies in the end."""

from __future__ import annotations

import nvflare.client as flare
import torch
from torch.nn.functional import cross_entropy

from modelkin.integrations.nvflare import ClusterClient
from modelkin.torch import fisher_importance
from tests.support.federations.two_kinds import examples, fit, mlp


def main() -> None:
    """Train in each round, on what this site holds."""
    torch.set_num_threads(1)
    flare.init()
    node = int(flare.get_site_name().removeprefix("site-"))
    (inputs, labels), model, client = examples(node), mlp(), ClusterClient()
    for number, received in enumerate(client.trainings(), start=1):
        model.load_state_dict(received.params)
        client.hand_over(fisher_importance(model, cross_entropy, [(inputs, labels)]))
        fit(model, inputs, labels)
        params = dict(model.state_dict())
        if (node, number) == (3, 2):
            del params["2.bias"]
        if (node, number) == (6, 3):
            raise RuntimeError("this site is meant to die")
        client.send(flare.FLModel(params=params, meta={"NUM_STEPS_CURRENT_ROUND": 10 + node}))


if __name__ == "__main__":
    main()
