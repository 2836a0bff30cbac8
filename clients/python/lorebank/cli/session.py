"""What all commands share: the global options, and the client made of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Group, Parameter

from lorebank.cli.failures import UsageError
from lorebank.client import DEFAULT_SERVER, DEFAULT_TIMEOUT_S, AsyncClient

GLOBAL_OPTIONS = Group("Global options", sort_key=100)


@Parameter(group=GLOBAL_OPTIONS, negative=())
@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The global options, which stand before or after the command.

    Attributes:
        server: Address of the server, as host:port; default: 127.0.0.1:50051.
        api_key: Key to act with; other users of the machine can see it on a command line, so rather set the variable.
        space: Space to work in; default: that of the key.
        timeout: Seconds that one call may take, its retries included.
        tls: Encrypt the connection.
        tls_roots: PEM file of the authorities to trust instead of the usual ones; switches --tls on.
        json: Print one JSON document instead of text.
    """

    server: Annotated[str, Parameter(env_var="LOREBANK_SERVER")] = ""
    api_key: Annotated[str, Parameter(env_var="LOREBANK_API_KEY")] = ""
    space: Annotated[str, Parameter(env_var="LOREBANK_SPACE")] = ""
    timeout: float = DEFAULT_TIMEOUT_S
    tls: bool = False
    tls_roots: Path | None = None
    json: bool = False

    @property
    def address(self) -> str:
        """The server to talk to, named or not."""
        return self.server or DEFAULT_SERVER

    def client(self) -> AsyncClient:
        """A client for these options.

        Raises:
            UsageError: The file of authorities cannot be read, or the timeout is not positive.
        """
        if self.timeout <= 0:
            raise UsageError("--timeout must be greater than 0.")
        try:
            roots = self.tls_roots.read_bytes() if self.tls_roots else None
        except OSError as error:
            raise UsageError(f"{self.tls_roots} cannot be read: {error.strerror}") from error
        return AsyncClient(
            self.address,
            api_key=self.api_key,
            space=self.space,
            timeout_s=self.timeout,
            tls=self.tls,
            root_certificates=roots,
        )


Own: TypeAlias = Annotated[Session, Parameter(parse=False)]
"""The session of a command: handed over by the launcher, no option of the command's own."""
