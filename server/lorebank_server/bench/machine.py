"""What a figure was measured on, for the head of every report."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe() -> str:
    """Processor, cores, system and the versions that matter, in one line."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    packages = ", ".join(f"{name} {version(name)}" for name in ("lorebank", "grpcio", "onnxruntime", "asyncpg"))
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}"
