"""Where a memory lives: who sees it, and where its natural key must be unique."""

from dataclasses import replace

from lorebank_server.domain.errors import PermissionDeniedError
from lorebank_server.domain.memory import Draft, Scope
from lorebank_server.domain.principal import Principal


def place(draft: Draft, principal: Principal) -> Draft:
    """Give a draft its scope and project: USER when none is named, a bound credential's project for PROJECT and TEAM.

    Raises:
        PermissionDeniedError: The principal may not write there.
    """
    scope = draft.scope or Scope.USER
    project = draft.project
    if principal.project:
        if project not in {"", principal.project}:
            raise PermissionDeniedError(
                f"This credential is bound to the project {principal.project!r}; leave memory.project out, or use "
                "a credential that opens the other project.",
                reason="PROJECT_NOT_ALLOWED",
            )
        if scope in {Scope.PROJECT, Scope.TEAM}:
            project = principal.project
    if scope is Scope.GLOBAL:
        require_admin_for_global(principal)
    return replace(draft, scope=Scope(scope), project=project)


def require_admin_for_global(principal: Principal) -> None:
    """Refuse anyone but an admin to write what everyone in the space reads."""
    if not principal.is_admin:
        raise PermissionDeniedError(
            "Only admins of the space write memories of scope GLOBAL; use TEAM to share with the team instead.",
            reason="ADMIN_REQUIRED",
        )


def key_namespace(scope: Scope, owner: str, project: str) -> str:
    """Where a natural key is unique: per owner, per project of a team, or in the whole space."""
    if scope.private:
        return f"owner:{owner}"
    return f"team:{project}" if scope is Scope.TEAM else "global"
