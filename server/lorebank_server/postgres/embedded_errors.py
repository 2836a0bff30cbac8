"""What can go wrong before the embedded Postgres serves; none of it ever reaches a caller of an RPC.

``EmbeddedPostgresError``
├── ``DataDirectoryInUseError``: another process owns the data folder
├── ``DataDirectoryUnusableError``: the data folder, or the account that should own it, will not do
├── ``PostgresStartError``: Postgres did not become ready; the message ends with its start-up log
└── ``StartInterruptedError``: the caller asked to give up waiting
"""

from pathlib import Path


class EmbeddedPostgresError(Exception):
    """Base of all errors of the embedded Postgres; the text is meant for the person who started it."""


class DataDirectoryInUseError(EmbeddedPostgresError):
    """Another process owns the data folder.

    Attributes:
        data_dir: The folder.
        owner_pid: The process that owns it; None when its lock does not say.
    """

    def __init__(self, data_dir: Path, owner_pid: int | None) -> None:
        owner = "another process" if owner_pid is None else f"process {owner_pid}"
        super().__init__(
            f"The data folder {data_dir} is in use by {owner}. "
            "Stop that server first, or give this one a folder of its own with LOREBANK_DATA_DIR."
        )
        self.data_dir = data_dir
        self.owner_pid = owner_pid


class DataDirectoryUnusableError(EmbeddedPostgresError):
    """The data folder cannot be made, entered or run by the account that Postgres needs."""


class PostgresStartError(EmbeddedPostgresError):
    """Postgres did not become ready."""


class StartInterruptedError(EmbeddedPostgresError):
    """The caller gave up while Postgres was starting; nothing is left running."""
