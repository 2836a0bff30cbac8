"""Spaces: create, read, list, update, and delete in two steps."""

from collections.abc import Callable
from dataclasses import replace

from lorebank_server.domain import limits, quality
from lorebank_server.domain.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from lorebank_server.domain.principal import OPERATOR_SPACE, Principal
from lorebank_server.domain.space import Space
from lorebank_server.operations import paging
from lorebank_server.operations.authenticate import require_governor, space_not_found
from lorebank_server.operations.services import Services
from lorebank_server.ports.administration import Administration

LANGUAGES = frozenset(
    [
        "simple",
        "arabic",
        "armenian",
        "basque",
        "catalan",
        "danish",
        "dutch",
        "english",
        "estonian",
        "finnish",
        "french",
        "german",
        "greek",
        "hindi",
        "hungarian",
        "indonesian",
        "irish",
        "italian",
        "lithuanian",
        "nepali",
        "norwegian",
        "portuguese",
        "romanian",
        "russian",
        "serbian",
        "spanish",
        "swedish",
        "tamil",
        "turkish",
        "yiddish",
    ]
)
DEFAULT_CONFIDENCE = 0.8
DEFAULT_LANGUAGE = "english"


def default_space(space_id: str) -> Space:
    """A space with every policy at its default."""
    return Space(
        number=0,
        id=space_id,
        display_name="",
        revision=1,
        half_life_days=quality.DEFAULT_HALF_LIFE_DAYS,
        default_confidence=DEFAULT_CONFIDENCE,
        stale_threshold=quality.DEFAULT_STALE_THRESHOLD,
        quality_policy=quality.DEFAULT_POLICY,
        language=DEFAULT_LANGUAGE,
    )


async def create_space(services: Services, principal: Principal, space: Space) -> Space:
    """Create a space; operators alone may.

    Raises:
        PermissionDeniedError: The caller is no operator.
        AlreadyExistsError: The id is taken.
        InvalidArgumentError: A field is at fault.
    """
    require_governor(principal)
    if not principal.is_operator:
        raise PermissionDeniedError(
            f"Only admins of the space {OPERATOR_SPACE!r} create spaces.", reason="OPERATOR_REQUIRED"
        )
    _check(space)
    created = await services.administration.create_space(principal, space, time=services.clock())
    if created is None:
        raise AlreadyExistsError(
            f"There is a space {space.id!r} already; choose another id.",
            reason="SPACE_EXISTS",
            metadata={"space": space.id},
        )
    return created


async def get_space(administration: Administration, principal: Principal, space_id: str) -> Space:
    """A space of the caller's; an empty id means the credential's own.

    Raises:
        NotFoundError: It is not there, or not the caller's.
    """
    wanted = space_id or principal.space
    if wanted != principal.space and not principal.is_operator:
        raise space_not_found(wanted)
    found = await administration.space(principal, wanted)
    if found is None:
        raise space_not_found(wanted)
    return found


async def list_spaces(
    services: Services, principal: Principal, *, page_size: int, page_token: str
) -> tuple[list[Space], str]:
    """A page of the caller's spaces in the order of their ids: its own, or all for an operator."""
    size = paging.page_size(page_size)
    position = paging.decode(page_token, query=["spaces", principal.space])
    rows = await services.administration.list_spaces(
        principal, after=position["after"] if position else "", limit=size + 1
    )
    token = paging.encode({"after": rows[size - 1].id}, query=["spaces", principal.space]) if len(rows) > size else ""
    return rows[:size], token


async def update_space(
    services: Services, principal: Principal, space_id: str, *, edit: Callable[[Space], Space], etag: str
) -> Space:
    """Change a space's name and policies.

    Raises:
        NotFoundError: It is not there, or not the caller's.
        AbortedError: The etag is stale.
        InvalidArgumentError: A field is at fault.
    """
    require_governor(principal)
    current = await get_space(services.administration, principal, space_id)
    stale = AbortedError(
        f"The space {current.id} has changed since you read it. Get it again, then retry with its new etag.",
        reason="ETAG_MISMATCH",
        metadata={"space": current.id},
    )
    if etag and etag != current.etag:
        raise stale
    edited = edit(current)
    _check(edited)
    if edited == current:
        return current
    if not await services.administration.update_space(principal, edited):
        raise stale
    return replace(edited, revision=edited.revision + 1)


async def delete_space(
    services: Services, principal: Principal, space_id: str, *, confirm: str
) -> tuple[int, str, bool]:
    """Delete a space with everything in it, beyond recovery.

    Returns:
        The number of memories, the digest to confirm with, and whether it was deleted.

    Raises:
        NotFoundError: It is not there, or not the caller's.
        FailedPreconditionError: It is the operators' own, or has changed since the digest was given.
    """
    require_governor(principal)
    space = await get_space(services.administration, principal, space_id)
    if space.id == OPERATOR_SPACE:
        raise FailedPreconditionError(
            f"The space {OPERATOR_SPACE!r} holds the operators' credentials and cannot be deleted.",
            reason="SPACE_REQUIRED",
            subject=space.id,
        )
    memories, digest = await services.administration.space_contents(principal, space)
    if not confirm:
        return memories, digest, False
    if not await services.administration.delete_space(principal, space, digest=confirm):
        raise FailedPreconditionError(
            f"The space {space.id} has changed since that digest was given: call again without confirm, look at the "
            "count, and confirm with the new digest.",
            reason="NOT_CONFIRMED",
            subject=space.id,
        )
    await services.vectors.settle()
    return memories, confirm, True


def _check(space: Space) -> None:
    limits.check_space_id("space.id", space.id)
    limits.check_text("space.display_name", space.display_name, maximum=limits.MAX_NAME_CHARS)
    limits.check_share("space.default_confidence", space.default_confidence)
    limits.check_share("space.stale_threshold", space.stale_threshold)
    if space.half_life_days is not None and not 0.0 < space.half_life_days <= 36_500.0:
        raise InvalidArgumentError(
            "space.half_life must be longer than zero and at most 36,500 days.", field="space.half_life"
        )
    if space.language not in LANGUAGES:
        raise InvalidArgumentError(
            f"space.language must be one of: {', '.join(sorted(LANGUAGES))}.", field="space.language"
        )
    if space.quality_policy not in quality.POLICIES:
        raise InvalidArgumentError(
            f"space.quality_policy must be one of: {', '.join(quality.POLICIES)}.", field="space.quality_policy"
        )
