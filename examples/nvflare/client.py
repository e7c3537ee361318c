"""A clinic: it trains as before, and hands over which parameters matter."""

from __future__ import annotations

import nvflare.client as flare
import torch
from torch.nn.functional import cross_entropy
from turned_digits.task import accuracy, load, network, train

from modelkin.integrations.nvflare import ClusterClient
from modelkin.torch import fisher_importance


def main() -> None:
    """Train in each round, from the model of this clinic's cluster on."""
    flare.init()
    torch.set_num_threads(1)  # the simulator has a process for each clinic
    part = int(flare.get_site_name().removeprefix("clinic-"))
    torch.manual_seed(part)
    samples, held_back = load(part)
    client, model = ClusterClient(), network()
    for received in client.trainings():
        model.load_state_dict(received.params)
        metrics = {"accuracy": accuracy(model, held_back)}  # of the model that came
        client.hand_over(fisher_importance(model, cross_entropy, [samples]))  # before any training
        train(model, samples, epochs=5)
        examples = {"NUM_STEPS_CURRENT_ROUND": len(samples[1])}
        client.send(flare.FLModel(params=model.state_dict(), metrics=metrics, meta=examples))


if __name__ == "__main__":
    main()
