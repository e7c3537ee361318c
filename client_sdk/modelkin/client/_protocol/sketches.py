"""The calls by which sketches are stored and read, beside signatures that are sent alone."""

from __future__ import annotations

from modelkin import wire
from modelkin.client._protocol import decoding, requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.spaces import Call
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import foreign_answer, parse_json
from modelkin.client._transport.messages import Response, media_type
from modelkin.core.sketching.sketch import Sketch
from modelkin.types.models import ModelInfo

__all__ = ["AsyncSketchCalls", "SketchCalls", "put_sketch"]


def put_sketch(space: str, model: str, sketch: Sketch, if_match: str | None) -> Call[ModelInfo]:
    """Stores the sketch of a model."""
    if not isinstance(sketch, Sketch):
        raise requests.wrong_type("sketch", "a modelkin.Sketch", sketch)
    path = requests.model_path(space, "sketches", model)
    content = wire.encode_sketch(sketch)
    request = requests.write("PUT", path, content, wire.SKETCH, if_match=if_match)
    return Call(request, _read_model)


def get_sketch(space: str, model: str) -> Call[Sketch]:
    """Reads it back."""
    path = requests.model_path(space, "sketches", model)
    return Call(requests.get(path, accept=wire.SKETCH), _read_sketch)


class SketchCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def put_sketch(
        self, space: str, model: str, sketch: Sketch, *, if_match: str | None = None
    ) -> ModelInfo:
        """Stores the sketch of a model that sent a signature alone, for sharper estimates.

        Args:
            space: where; its M must be the sketch's.
            model: the name; ``support_exists`` where it has a support, of which the service makes
                the sketch itself.
            sketch: as ``support.sketch()`` makes it, of the support that was signed. It goes when
                another signature is stored.
            if_match: the ``etag`` of the version to change, else ``precondition_failed``.
        """
        return self._run(put_sketch(space, model, sketch, if_match))

    def get_sketch(self, space: str, model: str) -> Sketch:
        """The sketch of a model; ``sketch_missing`` where it sent a signature and no sketch."""
        return self._run(get_sketch(space, model))


class AsyncSketchCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def put_sketch(
        self, space: str, model: str, sketch: Sketch, *, if_match: str | None = None
    ) -> ModelInfo:
        """Stores the sketch of a model that sent a signature alone, for sharper estimates."""
        return await self._run(put_sketch(space, model, sketch, if_match))

    async def get_sketch(self, space: str, model: str) -> Sketch:
        """The sketch of a model; ``sketch_missing`` where it sent a signature and no sketch."""
        return await self._run(get_sketch(space, model))


def _read_model(response: Response) -> ModelInfo:
    return decoding.read_model(Fields(parse_json(response)), response.headers.get("etag"))


def _read_sketch(response: Response) -> Sketch:
    if media_type(response) != wire.SKETCH:
        raise foreign_answer(response)
    return wire.decode_sketch(response.content)
