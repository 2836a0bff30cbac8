"""Which role each procedure of the contract needs. What is not in the table is served to nobody."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lorebank_server.domain.principal import Role

PACKAGE: Final = "lorebank.v1"

_MEMORY: Final = {
    Role.READER: (
        "Find Graph GetMemory BatchGetMemories ListMemories ListRevisions RenderContext ExplainFind ListBallots"
    ),
    Role.WRITER: (
        "Store BatchStore Vote RecordOutcome Supersede UpdateMemory DeleteMemory UndeleteMemory ForgetMemories "
        "ValidateMemory RevertEvolution"
    ),
    Role.REVIEWER: "ReviewMemory",
}
_KNOWLEDGE: Final = {
    Role.READER: "GetEntities ListEntities ListRelations ListCases MatchCases",
    Role.WRITER: "UpsertEntities DeleteEntities UpsertRelations DeleteRelations PutCase DeleteCases",
}
_SPACE: Final = {
    Role.READER: "GetSpace ListSpaces ListPacks GetStats GetEngagement WatchEvents",
    Role.ADMIN: (
        "CreateSpace UpdateSpace DeleteSpace CreateKey ListKeys RevokeKey InstallPack Prune CheckIntegrity Reindex "
        "ListEvents Export Import"
    ),
}

REQUIRED_ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        f"/{PACKAGE}.{service}/{procedure}": role
        for service, roles in (
            ("MemoryService", _MEMORY),
            ("KnowledgeService", _KNOWLEDGE),
            ("SpaceService", _SPACE),
        )
        for role, procedures in roles.items()
        for procedure in procedures.split()
    }
)
"""The role that each method, by its full path, needs."""


def is_ours(method: str) -> bool:
    """Whether a method belongs to the contract, and not to health or reflection."""
    return method.startswith(f"/{PACKAGE}.")


def acts_in_own_space(method: str) -> bool:
    """Whether a method reaches the credential's own space alone; governing spaces has its own rules."""
    return is_ours(method) and not method.startswith(f"/{PACKAGE}.SpaceService/")
