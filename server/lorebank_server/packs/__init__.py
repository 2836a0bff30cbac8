"""The vocabularies that ship with the server, as data: one TOML file a pack."""

import tomllib
from importlib import resources

from lorebank_server.domain.memory import Kind
from lorebank_server.domain.packs import Category, Pack, Vocabulary

_ORDER = ("agent-memory", "personal", "swarm")


def shipped_vocabulary() -> Vocabulary:
    """Read the shipped packs; a bare slug means the first of them that has it."""
    folder = resources.files(__package__)
    return Vocabulary([_parse((folder / f"{name}.toml").read_text(encoding="utf-8")) for name in _ORDER])


def _parse(text: str) -> Pack:
    data = tomllib.loads(text)
    return Pack(
        name=data["name"],
        version=data["version"],
        description=data["description"],
        categories=tuple(
            Category(
                slug=f"{data['name']}/{entry['slug']}",
                description=entry["description"],
                kind=Kind[entry["kind"].upper()],
                decays=entry.get("decays", True),
                half_life_days=entry.get("half_life_days"),
            )
            for entry in data["categories"]
        ),
    )
