#!/usr/bin/env python
"""Generates the typed Python stubs from the contract, or checks that the committed ones are fresh.

Run it with the interpreter of an environment that has the ``dev`` extra::

    python protos/generate.py          # writes clients/python/lorebank/v1/*_pb2*
    python protos/generate.py --check  # writes nothing; exit code 1 when a file is stale, missing or left over
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROTO_ROOT = Path(__file__).resolve().parent
STUB_ROOT = PROTO_ROOT.parent / "clients" / "python"
PACKAGE = Path("lorebank", "v1")
GENERATED = "*_pb2*.py*"
PROTOC_TIMEOUT_S = 120


def generate(destination: Path) -> None:
    """Write messages for every proto file, and service stubs for those that define a service.

    Args:
        destination: Existing folder that receives ``lorebank/v1/``.

    Raises:
        subprocess.CalledProcessError: A proto file or a plugin is at fault; protoc has said so on stderr.
    """
    protos = sorted((PROTO_ROOT / PACKAGE).glob("*.proto"))
    services = [path for path in protos if path.name.endswith("_service.proto")]
    _protoc(protos, f"--python_out={destination}", f"--mypy_out=quiet:{destination}")
    # Concrete, as at run time: a servicer may leave methods out, which then answer UNIMPLEMENTED.
    servicer_option = "quiet,generate_concrete_servicer_stubs"
    _protoc(services, f"--grpc_python_out={destination}", f"--mypy_grpc_out={servicer_option}:{destination}")


def stale_files(fresh: Path, committed: Path) -> list[str]:
    """Name the generated files that differ between two folders or are in only one of them, sorted."""
    names = {path.name for folder in (fresh, committed) for path in folder.glob(GENERATED)}
    return sorted(name for name in names if _content(fresh / name) != _content(committed / name))


def main() -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Generate the typed Python stubs from the contract.")
    parser.add_argument("--check", action="store_true", help="only check that the committed stubs are fresh")
    check: bool = parser.parse_args().check
    committed = STUB_ROOT / PACKAGE
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / PACKAGE
        stale = stale_files(fresh, committed)
        if check:
            for name in stale:
                sys.stderr.write(f"stale: {committed.relative_to(PROTO_ROOT.parent) / name}; run `make proto`\n")
            return 1 if stale else 0
        for name in stale:
            content = _content(fresh / name)
            if content is None:
                (committed / name).unlink()
            else:
                (committed / name).write_bytes(content)
            sys.stdout.write(f"updated {name}\n")
    return 0


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _protoc(protos: list[Path], *outputs: str) -> None:
    plugins_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    names = [str(path.relative_to(PROTO_ROOT)) for path in protos]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO_ROOT}", *outputs, *names],
        check=True,
        env={**os.environ, "PATH": plugins_first},
        timeout=PROTOC_TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
