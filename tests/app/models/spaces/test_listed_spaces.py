"""Layouts of spaces: kept apart from them, shown by the single GET, and read where they count."""

from __future__ import annotations

import httpx
import pytest

from app.container import Container
from app.jobs.service import JobService
from app.kinship.clustering.records import ClusteringContent
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.schemas.answers import ClusteringOut, ClusteringSummary
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import find_layout, tensor_sizes
from app.search.service import SearchService
from modelkin import Layout, Support
from tests.support.app.space import AppSpace
from tests.support.app.statements import statements
from tests.support.app.worker import AppWorker
from tests.support.http_space import Space, ok
from tests.support.models import planted_clusters

LAYOUT = [{"name": f"layer.{n}.weight", "shape": [5, 4]} for n in range(500)]
M = 10_000


def test_a_listing_of_spaces_shows_digests_of_layouts(http: httpx.Client) -> None:
    """The layout itself is shown by the GET of one space."""
    space, plain = Space(http, M, layout=LAYOUT), Space(http, M)
    listed = {each["name"]: each for each in ok(http.get("/v1/spaces?limit=1000"))["items"]}
    for each, layout in ((space, LAYOUT), (plain, None)):
        shown = each.show()
        assert layout == shown.pop("layout")
        assert shown == listed[each.name]
    assert Layout.from_json(LAYOUT).digest == listed[space.name]["layout_digest"]
    assert listed[plain.name]["layout_digest"] is None


def test_the_same_space_again_is_compared_by_its_layout(http: httpx.Client) -> None:
    """A layout of other names is another space, also where all sizes are equal."""
    space = Space(http, M, layout=LAYOUT)
    other = [{**LAYOUT[0], "name": "another"}, *LAYOUT[1:]]
    for layout, status in ((LAYOUT, 200), (other, 409)):
        body = {"name": space.name, "num_parameters": M, "layout": layout}
        assert status == http.post("/v1/spaces", json=body).status_code


def test_a_listing_of_jobs_has_no_names_of_models(space: Space) -> None:
    """A job shows the models that it is about by its own GET, and the other parameters always."""
    names = [f"m{n}" for n in range(4)]
    space.put_all(
        {name: Support.from_indices(range(n + 1, n + 50), M) for n, name in enumerate(names)}
    )
    made = space.http.post(
        space.path("clusterings"), json={"algorithm": "agglomerative", "models": names}
    )
    job = made.json()
    assert names == job["parameters"]["models"]
    assert names == ok(space.http.get(f"/v1/jobs/{job['id']}"))["parameters"]["models"]
    listed = ok(space.http.get("/v1/jobs", params={"space": space.name}))["items"]
    assert {"algorithm", "seed", "similarity"} == set(listed[0]["parameters"])


@pytest.mark.parametrize("ends", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_keeps_few_names_of_models(app_space: AppSpace, ends: str) -> None:
    """It keeps how many they were, and all other parameters; short lists stay."""
    support = Support.from_indices(range(50), planted_clusters.M)
    names = [f"{n}-{'n' * 190}" for n in range(25)]
    worker = AppWorker(app_space.services)
    for chosen, left in ((names[:3], {"models": names[:3]}), (names, {"models_left_out": 25})):
        app_space.put(dict.fromkeys(names, support))
        job = app_space.enqueue(ClusteringRequest("agglomerative", seed=3, models=tuple(chosen)))
        assert chosen == worker.job(job.id).parameters["models"]
        if ends == "cancelled":
            with app_space.database.writing() as session:
                app_space.services[JobService].cancel(session, app_space.tenant, job.id)
        elif ends == "failed":
            app_space.remove(chosen[0])
        ended = worker.execute(job)
        assert ends == ended.state
        others = {name: value for name, value in ended.parameters.items() if "models" in name}
        assert (left, 3) == (others, ended.parameters["seed"])


def test_a_listing_of_clusterings_has_no_names_of_models(app_space: AppSpace) -> None:
    """A clustering shows the models that were chosen by its own GET."""
    support = Support.from_indices(range(50), planted_clusters.M)
    app_space.put(dict.fromkeys("abc", support))
    job = app_space.enqueue(ClusteringRequest("agglomerative", models=("a", "b", "c")))
    app_space.finish(app_space.begin(job))
    (made,) = app_space.clusterings()
    listed = ClusteringSummary.of(app_space.space, made).parameters
    assert {"algorithm": "agglomerative", "seed": 0, "similarity": "auto"} == listed
    held = ClusteringContent((), (), (), ())
    shown = ClusteringOut.with_content(app_space.space, made, held).parameters
    assert {**listed, "models": ["a", "b", "c"]} == shown


@pytest.fixture
def laid_out(services: Container) -> AppSpace:
    """A space with a layout, and two models in it."""
    made = AppSpace(services, layout=Layout.from_json(LAYOUT), num_parameters=M)
    supports = {
        name: Support.from_indices(range(0, M, step), M) for name, step in (("a", 7), ("b", 9))
    }
    made.put(supports)
    return made


def test_no_layout_is_read_to_answer_about_a_model(laid_out: AppSpace) -> None:
    """Models, listings and neighbours with their kappa are answered without names of tensors."""
    reader = laid_out.services[ModelReader]

    def ask() -> None:
        with laid_out.database.reading() as session:
            space = laid_out.space
            reader.model(session, space, "a")
            reader.models(session, space, limit=10, cursor=None)
            subject = reader.stored_subject(session, space, "a")
            found = laid_out.services[SearchService].neighbors(session, space, subject, k=5)
            assert found.items[0].kappa is not None

    sent = statements(laid_out.database, ask)
    assert any("layouts.sizes" in each for each in sent)
    assert not any("layouts.tensors" in each for each in sent)


def test_the_sizes_are_those_of_the_layout(laid_out: AppSpace) -> None:
    """What chance is computed from is what the layout says, and goes with the space."""
    space: SpaceRecord = laid_out.space
    with laid_out.database.reading() as session:
        layout, sizes = find_layout(session, space), tensor_sizes(session, space)
    assert layout is not None
    assert sizes is not None
    assert Layout.from_json(LAYOUT) == layout
    assert [tensor.size for tensor in layout.tensors] == sizes.tolist()
    laid_out.drop()
    with laid_out.database.reading() as session:
        assert (None, None) == (find_layout(session, space), tensor_sizes(session, space))
