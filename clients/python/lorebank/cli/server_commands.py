"""``lorebank serve``, ``config`` and ``migrate``, which the server's own package carries out."""

from cyclopts import App

from lorebank.cli.examples import examples
from lorebank.cli.server_package import server_module
from lorebank.cli.session import Own


def register(app: App) -> None:
    """Add the commands."""
    app.command(serve, help_epilogue=examples("lorebank serve", "LOREBANK_LISTEN=127.0.0.1:6000 lorebank serve"))
    app.command(config, help_epilogue=examples("lorebank config", "lorebank config --json"))
    app.command(migrate, help_epilogue=examples("lorebank migrate"))


def serve() -> int:
    """Run a server until it is told to stop. Without settings it keeps its own Postgres and needs nothing else."""
    code: int = server_module("lorebank_server.app").serve_command()
    return code


def config(*, session: Own) -> int:
    """Show the settings of a server started here, where each comes from, and which variable changes it.

    Args:
        session: The global options.
    """
    code: int = server_module("lorebank_server.app").config_command(as_json=session.json)
    return code


def migrate() -> int:
    """Bring the database up to this version; serve does so too, unless it is told not to."""
    code: int = server_module("lorebank_server.app").migrate_command()
    return code
