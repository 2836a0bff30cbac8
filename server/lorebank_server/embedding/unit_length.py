"""Scaling of a model's raw output to the vectors that the port promises."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lorebank_server.embedding.failures import unavailable
from lorebank_server.ports.embedder import Vector


def to_unit_vectors(rows: NDArray[np.floating[Any]]) -> list[Vector]:
    """Scale every row to unit length.

    Args:
        rows: ``float[n, dimensions]``, of any length but zero.

    Returns:
        ``n`` read-only vectors that share no memory, so that caching one does not keep its batch alive.

    Raises:
        EmbedderUnavailableError: A row is zero, infinite or not a number, so it has no direction.
    """
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    if not np.all(np.isfinite(norms)) or not np.all(norms > 0):
        raise unavailable("The embedding model returned a vector without a direction; try another model.")
    vectors = [(row / norm).astype(np.float32) for row, norm in zip(rows, norms, strict=True)]
    for vector in vectors:
        vector.setflags(write=False)
    return vectors
