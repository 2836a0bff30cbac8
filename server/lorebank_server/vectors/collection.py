"""How a collection is made, and whether one that exists is the right one."""

from typing import Any

from qdrant_client import models

from lorebank_server.ports.vector_store import Generation
from lorebank_server.vectors.failures import misconfigured
from lorebank_server.vectors.spec import QdrantSpec


def creation(generation: Generation, spec: QdrantSpec) -> dict[str, Any]:
    """The arguments of ``create_collection`` beside the name.

    No graph spans the collection (``m`` is 0): each space has its own, since every search stays in one.
    """
    quantization = None
    if spec.quantization == "int8":
        quantization = models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
        )
    return {
        "vectors_config": models.VectorParams(
            size=generation.dimensions, distance=models.Distance.COSINE, on_disk=spec.on_disk
        ),
        "hnsw_config": models.HnswConfigDiff(m=0, payload_m=spec.payload_m, ef_construct=spec.ef_construct),
        "quantization_config": quantization,
        "on_disk_payload": spec.on_disk,
        "shard_number": spec.shards,
        "replication_factor": spec.replicas,
        "write_consistency_factor": spec.write_consistency,
    }


def check_vectors(description: models.CollectionInfo, generation: Generation) -> None:
    """Refuse a collection that somebody made for other vectors.

    Raises:
        VectorIndexUnavailableError: It has named vectors, other dimensions or another distance.
    """
    vectors = description.config.params.vectors
    if not isinstance(vectors, models.VectorParams):
        raise misconfigured(
            "Qdrant's collection has named vectors, so Lorebank did not make it; choose another prefix."
        )
    if vectors.size != generation.dimensions or vectors.distance is not models.Distance.COSINE:
        raise misconfigured(
            f"Qdrant's collection has vectors of {vectors.size} dimensions under {vectors.distance.value} instead of "
            f"{generation.dimensions} under Cosine; choose another prefix.",
        )
