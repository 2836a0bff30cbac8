"""Latency over load as a picture."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lorebank_server.bench.measurement import BOUND_MS, Step

MISSING: Final = "matplotlib is not installed: pip install 'lorebank[bench]'"

_INCHES: Final = (8.0, 5.0)
_DOTS_PER_INCH: Final = 120


def can_draw() -> bool:
    """Whether what draws is installed."""
    return find_spec("matplotlib") is not None


def draw(steps: Sequence[Step], file: Path, *, title: str) -> None:
    """Draw the percentiles of Find over the rate, and write them as PNG.

    Args:
        steps: At least one.
        file: Overwritten.
        title: Stands above.

    Raises:
        ModuleNotFoundError: See ``can_draw``.
        OSError: The file cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra of its own, and slow to load

    # Without pyplot there is no state that outlives the picture, and no display is looked for.
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    rates = [step.rate for step in steps]
    for name in ("p50", "p95", "p99"):
        axes.plot(
            rates, [getattr(step.find.rpc, name) for step in steps], marker="o", label=f"Find {name}, by its spans"
        )
    axes.plot(rates, [step.callers.p95 for step in steps], marker="o", linestyle="--", label="p95 for callers")
    axes.axhline(BOUND_MS, color="grey", linewidth=1, linestyle=":", label=f"{BOUND_MS:.0f} ms")
    axes.set(xlabel="calls a second", ylabel="milliseconds", yscale="log", title=title)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(file, format="png")
