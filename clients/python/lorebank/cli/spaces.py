"""``lorebank spaces``: create, list, get, update and delete."""

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Group, Parameter

from lorebank.cli.examples import examples
from lorebank.cli.failures import UsageError
from lorebank.cli.output import note, print_fields, print_json, print_rows
from lorebank.cli.paging import take
from lorebank.cli.session import Own
from lorebank.v1.space_pb2 import Space

_SETTINGS: Final = Group("Settings", sort_key=40)


@Parameter(group=_SETTINGS, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Changeable:
    """Settings that a space may change.

    Attributes:
        display_name: Name for people.
        default_confidence: Confidence of memories that state none, above 0 up to 1.
    """

    display_name: str | None = None
    default_confidence: float | None = None


@Parameter(group=_SETTINGS, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Changeable):
    """Settings of a new space.

    Attributes:
        language: Language of its memories, such as english or german; simple for mixed ones.
        half_life_days: Days in which an unused memory loses half its retention; 0 switches decay off.
        stale_threshold: Worth below which memories are hidden, 0 to 1.
        quality_policy: How worth is computed; none ranks by the question alone.
    """

    language: str | None = None
    half_life_days: float | None = None
    stale_threshold: float | None = None
    quality_policy: Literal["bayes-v2", "none"] | None = None


def register(app: App) -> None:
    """Add the commands."""
    spaces = App(name="spaces", help="Create, list, change and delete spaces, the tenants of a server.")
    spaces.command(create, help_epilogue=examples("lorebank spaces create acme --language german"))
    spaces.command(list_, name="list", help_epilogue=examples("lorebank spaces list"))
    spaces.command(get, help_epilogue=examples("lorebank spaces get", "lorebank spaces get acme --json"))
    spaces.command(
        update,
        help_epilogue=examples(
            "lorebank spaces update acme --display-name Acme", "lorebank spaces update acme --clear default_confidence"
        ),
    )
    spaces.command(
        delete,
        help_epilogue=examples(
            "lorebank spaces delete acme                    (counts, and shows the digest)",
            "lorebank spaces delete acme --confirm DIGEST   (deletes)",
        ),
    )
    app.command(spaces)


async def create(id: str, /, *, settings: Annotated[Settings | None, Parameter(name="*")] = None, session: Own) -> None:
    """Create a space.

    Args:
        id: Its id: lower-case letters, digits and hyphens.
        settings: What differs from the defaults.
        session: The global options.
    """
    async with session.client() as client:
        _answer(await client.spaces.create(Space(id=id, **_given(settings))), as_json=session.json)


async def list_(*, session: Own) -> None:
    """List the spaces that your key reaches.

    Args:
        session: The global options.
    """
    async with session.client() as client:
        spaces, _ = await take(client.spaces.list(), 0)
    if session.json:
        print_json(spaces)
        return
    print_rows(("id", "language", "name"), ((space.id, space.language, space.display_name) for space in spaces))


async def get(id: str = "", /, *, session: Own) -> None:
    """Show a space with its settings.

    Args:
        id: Its id; default: the space you work in.
        session: The global options.
    """
    async with session.client() as client:
        _answer(await client.spaces.get(id), as_json=session.json)


async def update(
    id: str,
    /,
    *,
    settings: Annotated[Changeable | None, Parameter(name="*")] = None,
    clear: tuple[str, ...] = (),
    etag: str = "",
    session: Own,
) -> None:
    """Change settings of a space.

    Args:
        id: Its id.
        settings: New values.
        clear: Setting to put back to its default, by its name in the contract, such as display_name; may be repeated.
        etag: Change it only if it still has this etag.
        session: The global options.
    """
    values = _given(settings)
    if not values and not clear:
        raise UsageError("Say what to change: options such as --display-name, or --clear SETTING.")
    async with session.client() as client:
        space = await client.spaces.update(Space(id=id, etag=etag, **values), mask=[*values, *clear])
    _answer(space, as_json=session.json)


async def delete(id: str, /, *, confirm: str = "", session: Own) -> None:
    """Delete a space with all that it holds, beyond recovery, in two steps.

    Without --confirm it only counts, and shows the digest to confirm with.

    Args:
        id: Its id.
        confirm: The digest that the first step showed.
        session: The global options.
    """
    async with session.client() as client:
        answer = await client.spaces.delete(id, confirm=confirm)
    if session.json:
        print_json(answer)
    elif answer.done:
        print_rows(("result", "id"), [("DELETED", id)])
    else:
        print_fields([("space", id), ("memories", str(answer.memories)), ("digest", answer.digest)])
        note(f"Nothing is deleted yet. To delete all of it: lorebank spaces delete {id} --confirm {answer.digest}")


def _given(settings: Changeable | None) -> dict[str, Any]:
    if settings is None:
        return {}
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    values = {name: value for name, value in values.items() if value is not None}
    if "half_life_days" in values:
        values["half_life"] = timedelta(days=values.pop("half_life_days"))
    return values


def _answer(space: Space, *, as_json: bool) -> None:
    if as_json:
        print_json(space)
        return
    half_life = space.half_life.ToTimedelta() / timedelta(days=1)
    print_fields(
        [
            ("id", space.id),
            ("name", space.display_name or "-"),
            ("language", space.language),
            ("half-life", f"{half_life:g} days" if half_life else "none"),
            ("stale below", f"{space.stale_threshold:g}"),
            ("confidence", f"{space.default_confidence:g}"),
            ("quality", space.quality_policy),
            ("embedding", f"{space.embedding.model} ({space.embedding.dimensions} dimensions)"),
            ("packs", ", ".join(space.packs) or "-"),
            ("etag", space.etag),
        ]
    )
