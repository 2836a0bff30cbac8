"""API keys: what is known of a credential once its secret was shown."""

from dataclasses import dataclass
from datetime import datetime

from lorebank_server.domain.principal import Role


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential of one space.

    Attributes:
        owner: Name under which its private memories are kept; keys of one owner share them.
        project: The only project it opens; empty when it is not bound.
        last_used_time: To within a minute.
    """

    id: str
    display_name: str
    owner: str
    roles: tuple[Role, ...]
    project: str
    create_time: datetime
    expire_time: datetime | None = None
    last_used_time: datetime | None = None
    revoke_time: datetime | None = None
