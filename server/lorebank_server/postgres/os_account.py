"""The operating-system account that Postgres runs under, and what that account can reach.

Postgres refuses to run as root, so root hands it to an unprivileged account.
"""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from lorebank_server.postgres.embedded_errors import DataDirectoryUnusableError

PREFERRED_ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class OsAccount:
    """An unprivileged account, without its supplementary groups.

    Attributes:
        name: For messages; the number when the account has no name.
        uid: Never 0.
        gid: Its primary group.
    """

    name: str
    uid: int
    gid: int

    def may(self, path: Path, permissions: int) -> bool:
        """Whether the mode of `path` itself (not of its parents) grants all of `permissions` (4, 2, 1)."""
        status = path.stat()
        if status.st_uid == self.uid:
            granted = status.st_mode >> 6
        elif status.st_gid == self.gid:
            granted = status.st_mode >> 3
        else:
            granted = status.st_mode
        return granted & permissions == permissions

    def first_closed_folder(self, path: Path) -> Path | None:
        """The outermost existing parent of an absolute `path` that the account cannot pass; None if none."""
        for parent in reversed(path.parents):
            if not parent.exists():
                return None
            if not self.may(parent, os.X_OK):
                return parent
        return None


def account_for(run_as: str | None, cluster: Path) -> OsAccount | None:
    """Decides which account Postgres runs under.

    Args:
        run_as: An account's name, or None to decide here.
        cluster: Where the cluster is, or will be. One that exists keeps its owner unless `run_as` is given.

    Returns:
        None where the current account will do, which is whenever it is not root.

    Raises:
        DataDirectoryUnusableError: `run_as` is unknown, is root, or is not for us to choose; or there
            is no account to drop to.
    """
    if run_as is not None:
        return _named(run_as)
    if os.geteuid() != 0:
        return None
    if cluster.is_dir() and (owner := cluster.stat()).st_uid != 0:
        return _numbered(owner)
    for name in PREFERRED_ACCOUNTS:
        try:
            return _from_entry(pwd.getpwnam(name))
        except KeyError:
            continue
    raise DataDirectoryUnusableError(
        f"Postgres does not run as root, and none of the accounts {', '.join(PREFERRED_ACCOUNTS)} exists. "
        "Start the server as another user, or name an account for Postgres."
    )


def _named(name: str) -> OsAccount | None:
    try:
        account = _from_entry(pwd.getpwnam(name))
    except KeyError:
        raise DataDirectoryUnusableError(f"Postgres cannot run as {name}: there is no such account.") from None
    if account.uid == 0:
        raise DataDirectoryUnusableError(f"Postgres cannot run as {name}: it refuses to be root.")
    if os.geteuid() == 0:
        return account
    if account.uid == os.geteuid():
        return None
    raise DataDirectoryUnusableError(f"Only root can run Postgres as {name}; leave the account out.")


def _numbered(status: os.stat_result) -> OsAccount:
    try:
        return _from_entry(pwd.getpwuid(status.st_uid))
    except KeyError:
        return OsAccount(str(status.st_uid), status.st_uid, status.st_gid)


def _from_entry(entry: pwd.struct_passwd) -> OsAccount:
    return OsAccount(entry.pw_name, entry.pw_uid, entry.pw_gid)


def hand_over(path: Path, account: OsAccount | None) -> None:
    """Makes `account` the owner of `path`, and of everything below when it was not; follows no symlink."""
    if account is None or path.lstat().st_uid == account.uid:
        return
    if stat.S_ISDIR(path.lstat().st_mode):
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.lchown(Path(folder, name), account.uid, account.gid)
    os.lchown(path, account.uid, account.gid)  # last: an interrupted hand-over is done again
