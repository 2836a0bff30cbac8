"""``lorebank demo``."""

from cyclopts import App

from lorebank.cli.examples import examples
from lorebank.cli.server_package import server_module


def register(app: App) -> None:
    """Add the command."""
    app.command(demo, help_epilogue=examples("lorebank demo"))


async def demo() -> int:
    """Take a tour of what Lorebank does, on a server of its own that is gone afterwards."""
    code: int = await server_module("lorebank.demo").run()
    return code
