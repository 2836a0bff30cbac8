"""Who calls: always from the credential, never from the request."""

from dataclasses import dataclass
from enum import IntEnum

OPERATOR_SPACE = "default"
"""The space whose admins operate the service: they create and delete spaces and issue keys for them."""


class Role(IntEnum):
    """What a principal may do; each role includes the ones before it."""

    UNSPECIFIED = 0
    READER = 1
    WRITER = 2
    REVIEWER = 3
    ADMIN = 4


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of one request.

    Attributes:
        space_id: Number of the space inside Postgres.
        space: Slug of the space.
        owner: Name under which private memories are kept.
        role: Highest role granted.
        project: The only project the credential opens; empty when it is not bound to one.
        key_id: Id of the API key, empty for the local default principal.
    """

    space_id: int
    space: str
    owner: str
    role: Role
    project: str = ""
    key_id: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether the caller administers its space."""
        return self.role >= Role.ADMIN

    @property
    def is_operator(self) -> bool:
        """Whether the caller may manage other spaces (but not read their memories)."""
        return self.is_admin and self.space == OPERATOR_SPACE and not self.project
