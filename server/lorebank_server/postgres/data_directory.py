"""The data folder: who owns it, what is in it, who may enter it.

Layout: `lock` (held while owned; its text is the owner's pid), `postgres/` (the cluster), `run/` (the
socket; a symlink when its path would be too long for one), `log/`, `start.log` (of the latest start),
and `pgsql-<version>/` where Postgres' account cannot reach the installed programs.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lorebank_server.postgres.embedded_errors import DataDirectoryInUseError, DataDirectoryUnusableError
from lorebank_server.postgres.os_account import OsAccount, account_for, hand_over

LOCK_MODE = 0o600
PRIVATE_MODE = 0o700
ENTERED_BY_GROUP_MODE = 0o710
MAX_SOCKET_PATH_BYTES = 100
SOCKET_NAME = ".s.PGSQL.5432"
SHORT_SOCKET_PREFIX = "lorebank-"
PARTIAL_CLUSTER_PREFIX = ".initdb-"
PARTIAL_PREFIXES = (PARTIAL_CLUSTER_PREFIX, ".pgsql-")


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A data folder that this process owns until `release`.

    Attributes:
        path: Absolute, symlinks resolved.
        account: The account that Postgres runs under; None for the current one.
        lock_fd: Closed on exec, so that no child keeps the folder.
    """

    path: Path
    account: OsAccount | None
    lock_fd: int

    @classmethod
    def claim(cls, path: Path, run_as: str | None) -> Self:
        """Makes the folder if need be and takes its lock; removes what an interrupted start left.

        Changes owner and mode only of a folder that it makes, finds empty, or that holds a cluster.

        Raises:
            DataDirectoryInUseError: Another process owns it.
            DataDirectoryUnusableError: It cannot be made, written, or entered by Postgres' account.
        """
        path = path.expanduser().resolve()
        account = account_for(run_as, path / "postgres")
        try:
            _make(path, account)
            lock_fd = _lock(path)
        except OSError as error:
            raise DataDirectoryUnusableError(
                f"The data folder {path} cannot be used: {error.strerror}. "
                "Set LOREBANK_DATA_DIR to a folder that this user may write to."
            ) from error
        directory = cls(path, account, lock_fd)
        for partial in path.iterdir():
            if partial.name.startswith(PARTIAL_PREFIXES):
                shutil.rmtree(partial, ignore_errors=True)
        directory.remove_short_socket_folder()
        return directory

    @property
    def cluster(self) -> Path:
        """Where Postgres keeps its files; exists once it was initialised completely."""
        return self.path / "postgres"

    @property
    def start_log(self) -> Path:
        """What Postgres said before it opened its log file, at the latest start."""
        return self.path / "start.log"

    @property
    def log_folder(self) -> Path:
        """Made on demand, closed to others; one file per weekday, overwritten a week later."""
        return self._private_folder("log")

    def socket_folder(self) -> Path:
        """Made on demand, closed to others: `run/`, or a short one in the temporary folder behind it."""
        folder = self.path / "run"
        if folder.is_symlink():
            return folder.readlink()
        if _fits_socket(folder):
            return self._private_folder("run")
        short = Path(tempfile.mkdtemp(prefix=SHORT_SOCKET_PREFIX, dir=self._short_parent()))
        hand_over(short, self.account)
        if folder.is_dir():  # left by a start under a shorter name of the data folder
            shutil.rmtree(folder)
        folder.symlink_to(short)
        return short

    def remove_short_socket_folder(self) -> None:
        """Removes the folder that `socket_folder` made in the temporary folder, if it did."""
        link = self.path / "run"
        if link.is_symlink():
            target = link.readlink()
            if target.name.startswith(SHORT_SOCKET_PREFIX):
                shutil.rmtree(target, ignore_errors=True)
            link.unlink()

    def partial_cluster(self) -> Path:
        """A new empty folder, owned by Postgres' account, to be renamed to `cluster` once complete."""
        folder = Path(tempfile.mkdtemp(prefix=PARTIAL_CLUSTER_PREFIX, dir=self.path))
        hand_over(folder, self.account)
        return folder

    def adopt(self, partial: Path) -> None:
        """Turns a complete partial cluster into the cluster, durably."""
        partial.rename(self.cluster)
        folder_fd = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)

    def release(self) -> None:
        """Gives the folder up. Call once, when nothing runs in it any more."""
        self.remove_short_socket_folder()
        os.ftruncate(self.lock_fd, 0)
        os.close(self.lock_fd)

    def _private_folder(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
        hand_over(folder, self.account)
        return folder

    def _short_parent(self) -> Path:
        for parent in (Path(tempfile.gettempdir()).resolve(), Path("/tmp")):  # noqa: S108 - mkdtemp in it
            is_open = self.account is None or self.account.first_closed_folder(parent / "socket") is None
            if is_open and _fits_socket(parent / (SHORT_SOCKET_PREFIX + "x" * 8)):
                return parent
        raise DataDirectoryUnusableError(
            f"The path of the data folder {self.path} is too long for a socket, and so is the temporary "
            "folder's. Set LOREBANK_DATA_DIR to a shorter path."
        )


def _fits_socket(folder: Path) -> bool:
    encoded = os.fsencode(folder / SOCKET_NAME)
    return len(encoded) <= MAX_SOCKET_PATH_BYTES and b"," not in encoded  # a comma separates hosts in a DSN


def _make(path: Path, account: OsAccount | None) -> None:
    if account is not None and (closed := account.first_closed_folder(path)) is not None:
        raise DataDirectoryUnusableError(
            f"Postgres runs as {account.name}, not as root, and {account.name} cannot enter {closed}, "
            f"which is above the data folder {path}. Set LOREBANK_DATA_DIR to a folder elsewhere, "
            "for example /var/lib/lorebank."
        )
    path.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    if account is None or account.may(path, os.X_OK):
        return
    if any(path.iterdir()) and not (path / "postgres").is_dir():
        raise DataDirectoryUnusableError(
            f"The data folder {path} holds other files, and {account.name}, which Postgres runs as, cannot "
            "enter it. Set LOREBANK_DATA_DIR to a new or empty folder."
        )
    os.chown(path, -1, account.gid)
    path.chmod(ENTERED_BY_GROUP_MODE)


def _lock(path: Path) -> int:
    lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, LOCK_MODE)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner_pid: int | None = None
        with suppress(ValueError):
            owner_pid = int(os.pread(lock_fd, 32, 0))
        os.close(lock_fd)
        raise DataDirectoryInUseError(path, owner_pid) from None
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)
    return lock_fd
