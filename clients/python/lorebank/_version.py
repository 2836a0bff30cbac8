"""The version of this distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("lorebank")
except PackageNotFoundError:  # run from a source tree
    __version__ = "unknown"
