"""The OpenAPI document: what it promises to the authors of generated clients."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from app.infra.http.openapi import CODES
from app.infra.http.schemas import RequestModel, ResponseModel
from modelkin.wire import NPY, PATCH, SUBSPACE
from tests.support.declared_problems import OPERATIONS as DECLARING
from tests.support.fixtures import on_one_database
from tests.support.http_space import JSON, RAW, ROARING, SIGNATURE, SUPPORT, Space, ok

# A name here is a promise: generated clients call their functions so.
OPERATIONS = {
    "create_space": ("post", "/v1/spaces"),
    "list_spaces": ("get", "/v1/spaces"),
    "get_space": ("get", "/v1/spaces/{space}"),
    "delete_space": ("delete", "/v1/spaces/{space}"),
    "put_support": ("put", "/v1/spaces/{space}/supports/{model}"),
    "get_support": ("get", "/v1/spaces/{space}/supports/{model}"),
    "patch_support": ("patch", "/v1/spaces/{space}/supports/{model}"),
    "list_revisions": ("get", "/v1/spaces/{space}/revisions/{model}"),
    "put_signature": ("put", "/v1/spaces/{space}/signatures/{model}"),
    "get_signature": ("get", "/v1/spaces/{space}/signatures/{model}"),
    "put_subspace": ("put", "/v1/spaces/{space}/subspaces/{model}"),
    "get_subspace": ("get", "/v1/spaces/{space}/subspaces/{model}"),
    "put_batch": ("post", "/v1/spaces/{space}/batch"),
    "list_models": ("get", "/v1/spaces/{space}/models"),
    "get_model": ("get", "/v1/spaces/{space}/models/{model}"),
    "update_model": ("patch", "/v1/spaces/{space}/models/{model}"),
    "delete_model": ("delete", "/v1/spaces/{space}/models/{model}"),
    "get_neighbors": ("get", "/v1/spaces/{space}/neighbors"),
    "find_neighbors": ("post", "/v1/spaces/{space}/neighbors"),
    "get_donors": ("get", "/v1/spaces/{space}/donors"),
    "find_donors": ("post", "/v1/spaces/{space}/donors"),
    "get_support_size": ("get", "/v1/spaces/{space}/support-size"),
    "report_support_size": ("post", "/v1/spaces/{space}/support-size"),
    "get_graph": ("get", "/v1/spaces/{space}/graph"),
    "create_map": ("post", "/v1/spaces/{space}/maps"),
    "get_latest_map": ("get", "/v1/spaces/{space}/maps/latest"),
    "get_tensors": ("get", "/v1/spaces/{space}/tensors"),
    "get_lineage": ("get", "/v1/spaces/{space}/lineage"),
    "list_lineages": ("get", "/v1/spaces/{space}/lineages"),
    "get_overlap": ("get", "/v1/spaces/{space}/overlap"),
    "get_similarity": ("post", "/v1/spaces/{space}/similarity"),
    "create_clustering": ("post", "/v1/spaces/{space}/clusterings"),
    "list_clusterings": ("get", "/v1/spaces/{space}/clusterings"),
    "get_latest_clustering": ("get", "/v1/spaces/{space}/clusterings/latest"),
    "get_clustering": ("get", "/v1/spaces/{space}/clusterings/{clustering}"),
    "delete_clustering": ("delete", "/v1/spaces/{space}/clusterings/{clustering}"),
    "assign_cluster": ("post", "/v1/spaces/{space}/clusterings/{clustering}/assign"),
    "join_cluster": ("post", "/v1/spaces/{space}/clusterings/{clustering}/join"),
    "put_clustering_policy": ("put", "/v1/spaces/{space}/clustering-policy"),
    "get_clustering_policy": ("get", "/v1/spaces/{space}/clustering-policy"),
    "delete_clustering_policy": ("delete", "/v1/spaces/{space}/clustering-policy"),
    "create_report": ("post", "/v1/reports"),
    "list_reports": ("get", "/v1/reports"),
    "get_report": ("get", "/v1/reports/{report}"),
    "delete_report": ("delete", "/v1/reports/{report}"),
    "put_report_policy": ("put", "/v1/report-policy"),
    "get_report_policy": ("get", "/v1/report-policy"),
    "delete_report_policy": ("delete", "/v1/report-policy"),
    "get_badge": ("get", "/v1/fingerprints/{model}/badge.svg"),
    "create_source": ("post", "/v1/sources"),
    "list_sources": ("get", "/v1/sources"),
    "get_source": ("get", "/v1/sources/{source}"),
    "update_source": ("patch", "/v1/sources/{source}"),
    "delete_source": ("delete", "/v1/sources/{source}"),
    "list_source_deliveries": ("get", "/v1/sources/{source}/deliveries"),
    "poll_source": ("post", "/v1/sources/{source}/poll"),
    "receive_delivery": ("post", "/v1/hooks/{source}"),
    "livez": ("get", "/livez"),
    "readyz": ("get", "/readyz"),
}
SUPPORTS = {SUPPORT, ROARING, RAW, JSON}
SUBSPACES = {SUBSPACE, NPY, JSON}
BODIES = {
    "create_space": {JSON},
    "update_model": {JSON},
    "get_similarity": {JSON},
    "report_support_size": {JSON},
    "put_support": SUPPORTS,
    "patch_support": {PATCH, JSON},
    "put_signature": {SIGNATURE, JSON},
    "put_subspace": SUBSPACES,
    "put_batch": {"application/jsonl"},
    "find_neighbors": {*SUPPORTS, SIGNATURE, *SUBSPACES},
    "find_donors": {*SUPPORTS, SIGNATURE, *SUBSPACES},
    "create_clustering": {JSON},
    "create_map": {JSON},
    "assign_cluster": {*SUPPORTS, SIGNATURE, *SUBSPACES},
    "join_cluster": {JSON},
    "put_clustering_policy": {JSON},
    "create_report": {JSON},
    "put_report_policy": {JSON},
    "create_source": {JSON},
    "update_source": {JSON},
    "receive_delivery": {JSON},
}


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> dict[str, Any]:
    return ok(http.get("/openapi.json"))


@on_one_database
def test_errors_are_problems(document: dict[str, Any], operations: dict[str, Any]) -> None:
    """Every error that is documented is a problem document, and no other kind is left over."""
    assert "HTTPValidationError" not in str(document)
    shared = document["components"]["responses"]
    assert all("application/problem+json" in answer["content"] for answer in shared.values())
    for operation in operations.values():
        for status, answer in operation["responses"].items():
            name = answer.get("$ref", "").removeprefix("#/components/responses/")
            assert (int(status) >= 400) == (name in shared)


@on_one_database
@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("create_space", {401, 403, 408, 409, 413, 415, 422, 429, 503, 507}),
        ("get_model", {401, 403, 404, 422, 429, 503}),
        ("put_support", {401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 503, 507}),
        ("patch_support", {401, 403, 404, 408, 409, 412, 413, 415, 422, 428, 429, 503, 507}),
        ("list_revisions", {401, 403, 404, 422, 429, 503}),
        ("get_overlap", {401, 403, 404, 409, 422, 429, 503}),
        ("create_clustering", {401, 403, 404, 408, 413, 415, 422, 429, 501, 503, 507}),
        ("assign_cluster", {401, 403, 404, 408, 409, 413, 415, 422, 429, 503}),
        ("get_sketch", {401, 403, 404, 406, 409, 422, 429, 503}),
        ("put_sketch", {401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 503, 507}),
        ("create_subscription", {401, 403, 408, 409, 413, 415, 422, 429, 503, 507}),
        ("get_subscription", {401, 403, 404, 422, 429, 503}),
        ("rotate_secret", {401, 403, 404, 409, 422, 429, 503, 507}),
        ("ping_subscription", {401, 403, 404, 409, 422, 429, 503, 507}),
        ("replay_delivery", {401, 403, 404, 409, 422, 429, 503, 507}),
        ("get_support", {401, 403, 404, 406, 409, 422, 429, 503}),
    ],
)
def test_which_problems(operations: dict[str, Any], name: str, statuses: set[int]) -> None:
    """An operation documents exactly the problems that it may answer; 421 holds for all."""
    assert statuses | {421} == {int(s) for s in operations[name]["responses"] if int(s) >= 400}


@on_one_database
def test_the_document_shows_what_is_declared(operations: dict[str, Any]) -> None:
    """The statuses of each operation in the document are those it declares in the code."""
    shown = {
        name: {int(status) for status in operation["responses"] if int(status) >= 400}
        for name, operation in operations.items()
    }
    assert shown == {
        name: {status for status, _ in operation.problems} for name, operation in DECLARING.items()
    }
    assert CODES not in str(operations)


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, Any]:
    """The operations by their ids."""
    return {
        operation["operationId"]: operation
        for item in document["paths"].values()
        for operation in item.values()
    }


@on_one_database
def test_the_operations_keep_their_names(document: dict[str, Any]) -> None:
    """Every promised operation is there, under its id and its path, and no id stands twice."""
    found = [
        (operation["operationId"], (method, path))
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    assert OPERATIONS.items() <= dict(found).items()
    assert len(dict(found)) == len(found)


@on_one_database
def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """``$ref`` points at a schema of the document."""
    references = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", repr(document)))
    assert references
    assert references <= set(document["components"]["schemas"])


@on_one_database
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_described(operations: dict[str, Any], operation: str) -> None:
    """Each has a summary, a description, a tag, and a schema for each of its parameters."""
    described = operations[operation]
    assert described["summary"]
    assert described["description"]
    assert described["tags"]
    assert all("schema" in parameter for parameter in described.get("parameters", []))


@on_one_database
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_parameters_of_the_path_are_declared(
    operations: dict[str, Any], operation: str
) -> None:
    """Each name in braces is a parameter, and every parameter of the path is in braces."""
    declared = operations[operation].get("parameters", [])
    inside = {parameter["name"] for parameter in declared if parameter["in"] == "path"}
    assert set(re.findall(r"{(\w+)}", OPERATIONS[operation][1])) == inside


@on_one_database
@pytest.mark.parametrize("operation", BODIES)
def test_a_body_lists_its_media_types(operations: dict[str, Any], operation: str) -> None:
    """A request body names exactly the types that are taken."""
    assert BODIES[operation] == set(operations[operation]["requestBody"]["content"])


@on_one_database
def test_operations_without_a_body_declare_none(operations: dict[str, Any]) -> None:
    """GET and DELETE take no body."""
    assert not {name for name in OPERATIONS if "requestBody" in operations[name]} - set(BODIES)


def example(document: dict[str, Any], operation: dict[str, Any]) -> Any:
    """The example of an operation's JSON body, its own or that of its schema."""
    content = operation["requestBody"]["content"][JSON]
    if "example" in content:
        return content["example"]
    reference = content["schema"]["$ref"].removeprefix("#/components/schemas/")
    return document["components"]["schemas"][reference]["examples"][0]


@on_one_database
def test_the_examples_work_as_they_stand(
    http: httpx.Client, document: dict[str, Any], operations: dict[str, Any]
) -> None:
    """A space, models and questions made of the document's own examples are all successes."""
    body = {name: example(document, operations[name]) for name in BODIES if JSON in BODIES[name]}
    space = ok(http.post("/v1/spaces", json=body["create_space"]))
    base = f"/v1/spaces/{space['name']}"
    for model in body["get_similarity"]["models"]:
        ok(http.put(f"{base}/supports/{model}", json=body["put_support"]))
    ok(http.patch(f"{base}/models/org/a", json=body["update_model"]))
    ok(http.post(f"{base}/similarity", json=body["get_similarity"]))
    for what in ("neighbors", "donors"):
        ok(http.post(f"{base}/{what}", json=body[f"find_{what}"]))
    assert 202 == http.post(f"{base}/clusterings", json=body["create_clustering"]).status_code
    assert 202 == http.post(f"{base}/maps", json=body["create_map"]).status_code
    ok(http.put(f"{base}/clustering-policy", json=body["put_clustering_policy"]))
    own = Space(http, 4810, signature={"num_perm": 4})
    ok(http.put(own.path("signatures", "a"), json=body["put_signature"]))


@on_one_database
@pytest.mark.slow
def test_every_documented_route_answers(http: httpx.Client, document: dict[str, Any]) -> None:
    """No documented path and method is unknown to the router."""
    for path, item in document["paths"].items():
        for method in item:
            url = path.replace("{space}", "nowhere").replace("{model}", "org/nobody")
            answer = http.request(method, re.sub("{.*?}", "x", url))
            assert answer.status_code != 405
            assert answer.status_code < 500
            if answer.status_code == 404:
                assert "route_not_found" != answer.json()["code"]


@on_one_database
def test_the_schema_of_a_model_is_what_is_answered(space: Space, document: dict[str, Any]) -> None:
    """The fields of a stored model are those that its schema declares."""
    space.http.put(space.path("supports", "a"), json={"indices": [1, 2]})
    declared = document["components"]["schemas"]["ModelOut"]
    assert set(declared["properties"]) == set(space.model("a"))
    assert set(declared["required"]) <= set(space.model("a"))
    shown = document["components"]["schemas"]["SpaceOut"]["properties"]
    assert set(shown) == set(space.show())


@on_one_database
def test_the_document_and_its_page_are_there(http: httpx.Client) -> None:
    """``/docs`` shows ``/openapi.json``, which says its version."""
    assert "/docs/start.js" in http.get("/docs").text
    assert "/openapi.json" in http.get("/docs/start.js").text
    document = ok(http.get("/openapi.json"))
    assert (True, "modelkin") == (document["openapi"].startswith("3."), document["info"]["title"])
    assert ok(http.get("/livez"))["version"] == document["info"]["version"]


def test_every_example_is_valid_by_its_schema() -> None:
    """Examples hold what their model accepts, and each field that it always answers."""
    shown = 0
    for model in model_classes(RequestModel) | model_classes(ResponseModel):
        extra: Any = model.model_config.get("json_schema_extra") or {}
        for given in extra.get("examples", []):
            model.model_validate_json(to_json(given))
            if issubclass(model, ResponseModel):
                assert set(model.model_fields) == set(given)
            shown += 1
    assert shown > 10


@on_one_database
def test_every_operation_shows_an_example(
    document: dict[str, Any], operations: dict[str, Any]
) -> None:
    """Each JSON body and each JSON answer has one, and it is valid by its schema."""
    schemas = {m for m in model_classes(BaseModel) if m.__module__.startswith("app.")}
    models = {model.__name__: model for model in schemas}
    shown = 0
    for operation in operations.values():
        answers = [a for status, a in operation["responses"].items() if int(status) < 400]
        for part in (operation.get("requestBody", {}), *answers):
            if JSON in part.get("content", {}):
                content = part["content"][JSON]
                example_shown = given(document, content)
                assert "'text'" not in repr(example_shown)
                if name := content["schema"].get("$ref", "").rpartition("/")[2]:
                    assert [] == wrong_values(models[name], example_shown)
                    declared = document["components"]["schemas"][name]
                    assert set(declared.get("required", [])) <= set(example_shown)
                shown += 1
    assert shown > 100


def wrong_values(model: type[BaseModel], value: Any) -> list[Any]:
    """What a model refuses of a value; a record's names may differ, so none is missing here."""
    try:
        model.model_validate_json(to_json(value))
    except ValidationError as error:
        return [each for each in error.errors() if each["type"] != "missing"]
    return []


def given(document: dict[str, Any], content: dict[str, Any]) -> Any:
    """The example of a body or an answer, its own or that of its schema."""
    if "example" in content:
        return content["example"]
    schema = content["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema["examples"][0]


def model_classes(base: type[BaseModel]) -> set[type[BaseModel]]:
    """All that inherit from a class."""
    own = set(base.__subclasses__())
    return own.union(*(model_classes(each) for each in own))


@on_one_database
def test_every_tag_says_what_it_holds(document: dict[str, Any], operations: dict[str, Any]) -> None:
    """The page groups operations by tags; each has a text, and none is empty."""
    described = [tag["name"] for tag in document["tags"] if tag["description"]]
    used = {tag for operation in operations.values() for tag in operation["tags"]}
    assert sorted(used) == sorted(described)


@on_one_database
def test_a_summary_says_what_its_operation_does(operations: dict[str, Any]) -> None:
    """Each is a phrase of its own of 3 to 8 words, and neither its id nor a function's name.

    FastAPI makes a name in capitals of the function where an operation declares none.
    """
    phrase = re.compile(r"[A-Z][a-z]+(?: (?:API|URLs?|Prometheus|[a-z,']+)){2,7}")
    summaries = {name: operation["summary"] for name, operation in operations.items()}
    assert len(set(summaries.values())) == len(summaries)
    for name, summary in summaries.items():
        assert phrase.fullmatch(summary), (name, summary)
        assert len(summary) <= 60, summary
        said = [word.lower() for word in summary.split() if word not in {"a", "an", "the"}]
        assert said != name.split("_"), summary
