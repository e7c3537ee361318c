"""The federations of the evidence share, average and pull what their rules say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch import nn

from benchmarks.dfl2g import paper
from benchmarks.dfl2g.algorithms import ALGORITHMS, k_means, points
from benchmarks.dfl2g.architectures import ARCHITECTURES, SHARED
from benchmarks.dfl2g.arrivals import arrive
from benchmarks.dfl2g.data import Population, datasets, of_halves, of_mixes
from benchmarks.dfl2g.federation import layers_of, mean_of_largest, train
from benchmarks.dfl2g.measures import Measure
from benchmarks.dfl2g.penalties import GRID, SETTINGS
from benchmarks.dfl2g.pulls import Masked, UnsquaredPull, importances, low_share, models_of
from benchmarks.dfl2g.rules import newcomers, ranks_of_eq8
from benchmarks.dfl2g.sharing import ADAPTIVE, FEDAVG, RULES, Adaptive, lowest
from demo.cohort import BATCH, DECAY, MOMENTUM, RATE, Cohort, network, repeat, stack
from modelkin.torch import ClusterPenalty

ONE = {rule.name: rule for rule in RULES}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def population() -> Population:
    return of_halves(next(datasets()), 0)


def test_resnet_18_has_the_published_number_of_parameters() -> None:
    """The share is of 11,689,512 values with the stem and the classes of ImageNet."""
    assert 11_689_512 == round(
        9 * 512 * (256 + 3 * 512) / paper.resnet18_share(stem=7, classes=1000)
    )
    assert paper.resnet18_share() == pytest.approx(0.7390, abs=5e-5)


def test_the_paper_prints_every_method_in_every_setting() -> None:
    """Its ratios of FedAvg to its own method are from 3.4 to 5.6 in Table 1."""
    for table in (paper.COMM, paper.CEF, paper.NEWCOMERS):
        assert {len(paper.SETTINGS)} == {len(row) for row in table.values()}
    ratios = np.divide(paper.COMM["FedAvg"], paper.COMM[paper.OURS])
    assert (3.4, 5.6) == (round(ratios.min(), 1), round(ratios.max(), 1))


def test_newcomers_have_classes_that_no_client_has(population: Population) -> None:
    """Four each of two halves, and no party is tested on a class that it does not have."""
    seen = [set(own.tolist()) for own in population.clients.cohort.labels]
    new = [set(own.tolist()) for own in population.newcomers.cohort.labels]
    assert {4} == {len(own) for own in seen + new}
    assert 5 == len(set.union(*seen)) == len(set.union(*new))
    assert not set.union(*seen) & set.union(*new)
    for parties, classes in ((population.clients, seen), (population.newcomers, new)):
        assert classes == [set(own.tolist()) for own in parties.test_labels]


def test_no_image_is_both_trained_and_tested_on(population: Population) -> None:
    """Test images of one party are not training images of any."""
    trained = torch.cat(
        [each.cohort.samples.flatten(0, 1) for each in (population.clients, population.newcomers)]
    )
    tested = population.clients.test_samples.flatten(0, 1).unique(dim=0)
    both = torch.cat([trained.unique(dim=0), tested])
    assert len(both) == len(both.unique(dim=0))


def test_mixes_are_those_that_clients_are_tested_on() -> None:
    """With a small beta most of a client's images are of one class, in training and test alike."""
    parties = of_mixes(next(datasets()), 0, 0.1).clients
    for own, tested in zip(parties.cohort.labels, parties.test_labels, strict=True):
        assert own.mode().values == tested.mode().values or len(own.unique()) > 1
    assert np.mean([len(own.unique()) for own in parties.cohort.labels]) < 4


def test_a_cohort_trains_as_torch_does(population: Population) -> None:
    """One client ends where ``torch.optim.SGD`` ends with the same batches."""
    samples, labels = population.clients.cohort.samples[:1], population.clients.cohort.labels[:1]
    model = network(3)
    weights = stack([model])
    Cohort(model, samples, labels).train(weights, 2, torch.Generator().manual_seed(5))
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(5)
    for _ in range(2):
        order = torch.rand(1, 32, generator=generator).argsort(1)[0]
        for batch in order[:30].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(samples[0, batch]), labels[0, batch]).backward()
            optimizer.step()
    for name, parameter in model.named_parameters():
        assert weights[name][0].numpy() == pytest.approx(parameter.detach().numpy(), abs=1e-6)


def test_kept_weights_stay_and_others_move(population: Population) -> None:
    """To the bit, although decay would move them."""
    cohort = population.newcomers.cohort
    start = repeat(stack([cohort.template]), len(cohort))
    weights = {name: values.clone() for name, values in start.items()}
    kept = {name: torch.full_like(values, "conv" in name).bool() for name, values in start.items()}
    cohort.train(weights, 1, torch.Generator().manual_seed(0), kept=kept)
    for name, values in weights.items():
        assert ("conv" in name) == torch.equal(values, start[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("FedAvg", 25_274),
        ("local", 0),
        ("PartialFed-Fix, first 4", 160 + 2_320 + 4_640 + 9_248),
        ("FedFina, last 2", 8_256 + 650),
        ("FedLPS, prune 0.8", 32 + 464 + 928 + 1_849 + 1_651 + 130),
        ("Eq. 8, highest 3", 25_274),
    ],
)
def test_a_rule_sends_its_layers(population: Population, name: str, values: int) -> None:
    """Four bytes a value; layers chosen by a score are all shared in the first round."""
    assert [4 * values] == train(population, ONE[name], rounds=1, epochs=1).up


@pytest.mark.slow
def test_clusters_average_what_their_members_sent() -> None:
    """The mean of five clients each, in float64; without sharing, models stay at the start."""
    turned = of_halves(next(datasets()), 1, turned=True)
    found = train(turned, FEDAVG, rounds=1, epochs=1)
    for name, models in found.models.items():
        for group in range(4):
            mean = found.weights[name][turned.groups == group].double().mean(0)
            assert models[group].numpy() == pytest.approx(mean.numpy(), abs=1e-7)
    alone = train(turned, ONE["local"], rounds=1, epochs=1)
    start = dict(turned.clients.cohort.template.named_parameters())
    assert all(torch.equal(values[0], start[name]) for name, values in alone.models.items())
    assert not alone.held.any()


def test_the_largest_values_are_averaged_where_somebody_sent_them() -> None:
    """Half of each layer, weights and biases together; others keep what they had."""
    old = {"a.weight": np.zeros(3, np.float32), "a.bias": np.full(1, 9, np.float32)}
    sent = {
        0: {"a.weight": np.array([4, 1, -3], np.float32), "a.bias": np.array([0], np.float32)},
        1: {"a.weight": np.array([2, 1, 0], np.float32), "a.bias": np.array([-8], np.float32)},
    }
    found = mean_of_largest(old, sent, 0.5)
    assert [3, 0, -3] == found["a.weight"].tolist()
    assert [-8] == found["a.bias"].tolist()


def test_the_lowest_scores_are_chosen() -> None:
    """So many in each row, the earlier of equal ones."""
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    assert [[False, True, True], [True, True, False]] == lowest(scores, 2).tolist()


@pytest.mark.slow
def test_eq_8_orders_layers_by_their_size() -> None:
    """Whatever the training did."""
    correlations, _ = ranks_of_eq8(3)
    assert [1.0] * 3 == pytest.approx(correlations)


def test_penalties_pull_each_client_to_its_own_cluster(population: Population) -> None:
    """By lambda times the distance, or by lambda alone where the norms are not squared."""
    cohort = population.clients.cohort
    weights = repeat(stack([cohort.template]), len(cohort))
    anchors = {
        name: values - torch.arange(1.0, 21).view(-1, *[1] * (values.dim() - 1))
        for name, values in weights.items()
    }
    for pull in (Masked(smooth=0.05), UnsquaredPull(smooth=0.05)):
        gradients = {name: torch.ones_like(values) for name, values in weights.items()}
        pull.begin(population, weights, anchors)
        pull.add(gradients)
        for at in (0, 19):
            added = torch.cat([values[at].flatten() - 1 for values in gradients.values()])
            distance = at + 1.0
            wanted = 0.05 * distance
            if isinstance(pull, UnsquaredPull):
                wanted = 0.05 / len(added) ** 0.5
            assert added.numpy() == pytest.approx(wanted, abs=2e-7 + 1e-5 * distance)


def test_epsilon_selects_what_the_paper_says(population: Population) -> None:
    """The product's quantile at the share is the mask of scaled values up to epsilon."""
    cohort = population.clients.cohort
    weights = repeat(stack([cohort.template]), len(cohort))
    models = models_of(cohort, weights)[:1]
    (fisher,) = importances(cohort, models)
    scaled = (fisher - fisher.min()) / (fisher.max() - fisher.min())
    zeros = {name: torch.zeros_like(values[0]) for name, values in weights.items()}
    for epsilon in (0.001, 0.1):
        share = low_share(fisher, epsilon)
        penalty = ClusterPenalty(models[0], zeros, elastic=2.0, fisher=fisher, threshold=share)
        values = torch.cat([parameter.detach().flatten() for parameter in models[0].parameters()])
        wanted = float((values[scaled <= epsilon].double() ** 2).sum())
        assert penalty.value() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
def test_newcomers_inherit_from_one_cluster_of_turned_clients() -> None:
    """A federation whose clusters are not the groups has starts for all newcomers."""
    turned = of_halves(next(datasets()), 0, turned=True)
    found = train(turned, FEDAVG, rounds=1, epochs=1, clusters=turned.groups * 0)
    assert 1 == len(newcomers(turned, found, (1,)))


def test_a_setting_of_the_penalties_is_named_once() -> None:
    """Tables are by name."""
    assert len(SETTINGS) == len({each.name for each in SETTINGS})
    assert len(GRID) == len({each.name for each in GRID.values()}) == 16


def blobs(count: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Points in four places, of unit length, and their places."""
    rng, groups = np.random.default_rng(4), np.arange(count) % 4
    drawn = 3 * np.eye(6)[groups] + noise * rng.normal(size=(count, 6))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True), groups


@pytest.mark.parametrize("squared", [True, False])
def test_clusterings_see_points_as_far_apart_as_the_clients(squared: bool) -> None:
    """Whether distances are Euclidean or half of their squares; K-means is that of the points."""
    drawn, groups = blobs(24, 0.5)
    products = drawn @ drawn.T
    distances = np.sqrt(np.maximum(2 - 2 * products, 0))
    measure = Measure(distances**2 / 2, products) if squared else Measure(distances, None)
    found = points(measure)
    again = np.linalg.norm(found[:, None] - found[None], axis=2)
    assert distances == pytest.approx(again, abs=1e-6)
    theirs = KMeans(4, n_init=10, random_state=0).fit_predict(drawn)
    assert adjusted_rand_score(theirs, k_means(measure, 4, 0)) == 1.0
    for find in ALGORITHMS.values():
        assert adjusted_rand_score(groups, find(measure, 4, 0)) == 1.0


def test_newcomers_join_the_nearest_mean() -> None:
    """As by means that are computed from all members each time; kept means know no order."""
    drawn, groups = blobs(40, 1.0)
    own, rng = groups[:8], np.random.default_rng(2)
    for running in (False, True):
        order = rng.permutation(32)
        found = arrive(drawn @ drawn.T, own, order, running=running)
        members = {group: [drawn[at] for at in np.flatnonzero(own == group)] for group in range(4)}
        every = list(drawn[:8])
        for newcomer in order:
            x = drawn[8 + newcomer]
            far = [np.linalg.norm(x - np.mean(members[group], axis=0)) for group in range(4)]
            nearest = int(np.argmin(far))
            if far[nearest] >= np.linalg.norm(x - np.mean(every, axis=0)):
                nearest = -1
            assert nearest == found[newcomer]
            if running and nearest >= 0:
                members[nearest].append(x)
                every.append(x)
    kept = [arrive(drawn @ drawn.T, own, rng.permutation(32), running=False) for _ in range(2)]
    assert np.array_equal(kept[0], kept[1])


def test_clients_learn_to_load_what_serves_them(population: Population) -> None:
    """A trained layer in place of a spoilt one, on either side; what is equal is loaded."""
    cohort = population.clients.cohort
    trained = repeat(stack([cohort.template]), len(cohort))
    cohort.train(trained, 4, torch.Generator().manual_seed(0))
    spoilt = {name: values.clone() for name, values in trained.items()}
    spoilt["head.weight"].neg_()
    layers = layers_of(trained)
    for own, common, loads in ((trained, spoilt, False), (spoilt, trained, True)):
        strategy = Adaptive(layers, cohort)
        for _ in range(2):
            found = strategy.loaded(own, common)
        assert (found[:, -1] == loads).all()
        assert found[:, :-1].all()


@pytest.mark.slow
def test_partial_federations_send_what_they_load(population: Population) -> None:
    """All layers in the first round, when all are alike, and the whole model comes back."""
    found = train(population, ADAPTIVE, rounds=2, epochs=1)
    sizes = [160, 2_320, 4_640, 9_248, 8_256, 650]
    assert [
        4 * sum(sizes),
        pytest.approx(4 * float((found.loaded * sizes).sum(1).mean())),
    ] == found.up
    assert [0, 4 * sum(sizes)] == found.down


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_other_architectures_share_the_first_layers(build: Callable[[int], nn.Module]) -> None:
    """By name and shape, and nothing behind them."""
    mine, theirs = (
        {name: each.shape for name, each in model.named_parameters()}
        for model in (network(0), build(0))
    )
    common = [name for name in mine if mine[name] == theirs.get(name)]
    assert [f"conv{at}.{part}" for at in range(1, SHARED + 1) for part in ("weight", "bias")] == [
        name for name in common if name.startswith("conv")
    ]
    assert {"fc1.weight", "head.weight"}.isdisjoint(common)
