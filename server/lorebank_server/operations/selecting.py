"""Bringing a selector into normal form, the same for every read."""

from dataclasses import replace

from lorebank_server.domain import limits
from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.packs import Vocabulary
from lorebank_server.domain.selector import Selector

MAX_SELECTOR_ENTRIES = 500


def resolve(selector: Selector, vocabulary: Vocabulary) -> Selector:
    """Check a selector; categories become full slugs, tags take their normal form, subjects lose their case.

    Raises:
        InvalidArgumentError: A field is at fault.
    """
    for name in ("categories", "collections", "subjects", "agents", "runs", "owners", "ids"):
        values = getattr(selector, name)
        if len(values) > MAX_SELECTOR_ENTRIES:
            raise InvalidArgumentError(
                f"selector.{name} has {len(values)} entries; at most {MAX_SELECTOR_ENTRIES} are compared.",
                field=f"selector.{name}",
            )
        for value in values:
            limits.check_text(f"selector.{name}", value, maximum=limits.MAX_NAME_CHARS)
    limits.check_project("selector.project", selector.project)
    for collection in selector.collections:
        limits.check_slug("selector.collections", collection)
    for category in selector.categories:
        limits.check_slug("selector.categories", category)
    if selector.created_after and selector.created_before and selector.created_before <= selector.created_after:
        raise InvalidArgumentError(
            "selector.created_before must be later than selector.created_after.", field="selector.created_before"
        )
    return replace(
        selector,
        categories=tuple(vocabulary.category(slug, field="selector.categories").slug for slug in selector.categories),
        # As written too, for databases whose lower() knows ASCII alone.
        subjects=tuple(dict.fromkeys(form for name in selector.subjects for form in (name, name.lower()))),
        tags_all=limits.tags("selector.tags_all", selector.tags_all),
        tags_any=limits.tags("selector.tags_any", selector.tags_any),
    )
