"""Spaces and their settings. A number that is zero and a text that is empty mean the default."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lorebank.v1 import space_pb2
from lorebank_server.domain.space import Space
from lorebank_server.operations.spaces import default_space
from lorebank_server.rpc.conversion.masks import check_paths
from lorebank_server.rpc.conversion.requests import require
from lorebank_server.rpc.conversion.values import set_days, to_days
from lorebank_server.rpc.unsupported import Unsupported, not_supported

CHANGEABLE_SETTINGS: Final = ("display_name", "default_confidence")
"""Settings that UpdateSpace changes."""

_GIVEN_BY_THE_SERVICE: Final = frozenset({"id", "etag", "embedding", "packs"})


def to_new_space(message: space_pb2.Space) -> Space:
    """A space to create, with the defaults of whatever is left out; a half-life of zero means no decay."""
    defaults = default_space(message.id)
    half_life_days = defaults.half_life_days
    if message.HasField("half_life"):
        half_life_days = to_days(message.half_life) or None
    return replace(
        defaults,
        display_name=message.display_name,
        half_life_days=half_life_days,
        default_confidence=message.default_confidence or defaults.default_confidence,
        stale_threshold=message.stale_threshold or defaults.stale_threshold,
        quality_policy=message.quality_policy or defaults.quality_policy,
        language=message.language or defaults.language,
    )


def to_space_edit(request: space_pb2.UpdateSpaceRequest) -> Callable[[Space], Space]:
    """The change that a request asks for, as a function of the space it meets.

    Raises:
        InvalidArgumentError: The id or the mask is empty, or the mask names a path that cannot be changed.
    """
    require("space.id", request.space.id)
    require("update_mask", request.update_mask.paths)
    paths = frozenset(request.update_mask.paths)
    for path in sorted(paths):
        _check_setting(path)
    changes = to_new_space(request.space)

    def edit(space: Space) -> Space:
        return replace(
            space,
            display_name=changes.display_name if "display_name" in paths else space.display_name,
            default_confidence=(
                changes.default_confidence if "default_confidence" in paths else space.default_confidence
            ),
        )

    return edit


def _check_setting(path: str) -> None:
    setting = path.partition(".")[0]
    settings = space_pb2.Space.DESCRIPTOR.fields_by_name.keys()
    if path in CHANGEABLE_SETTINGS or setting not in settings or setting in _GIVEN_BY_THE_SERVICE:
        check_paths([path], allowed=CHANGEABLE_SETTINGS)
    else:
        raise not_supported(Unsupported(f"space.{setting}", instead="It is set when the space is created."))


def from_space(space: Space) -> space_pb2.Space:
    """The message of a space."""
    message = space_pb2.Space(
        id=space.id,
        display_name=space.display_name,
        etag=space.etag,
        default_confidence=space.default_confidence,
        stale_threshold=space.stale_threshold,
        quality_policy=space.quality_policy,
        language=space.language,
    )
    set_days(message.half_life, space.half_life_days or 0.0)
    if space.embedding is not None:
        message.embedding.model = space.embedding.model
        message.embedding.dimensions = space.embedding.dimensions
        message.embedding.generation = space.embedding.generation
    return message
