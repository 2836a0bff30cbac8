"""What a Qdrant store is told: where the server is, and how collections are made and searched."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class QdrantSpec:
    """A Qdrant server or cluster from version 1.15 on, and how it is used.

    What is marked "at creation" shapes a collection when it is made; one that exists keeps what it was made with.

    Attributes:
        url: Address of the gRPC port, ``http://host:6334``, or ``https://`` for TLS.
        api_key: Sent with every call; not part of this object's repr.
        ca_file: Certificates in PEM form to trust for TLS; None: those that gRPC brings.
        timeout_s: Longest wait for one answer to a search or a check, in seconds.
        write_timeout_s: Longest wait for one answer to anything else, in seconds.
        prefix: Begins the name of every collection.
        payload_m: Edges of each point within the graph of its own space; there is no other graph. At creation.
        ef_construct: Neighbours looked at when a point is linked into the graph. At creation.
        quantization: ``int8`` searches by a quarter of the memory, then again by the full vectors. At creation.
        on_disk: Whether full vectors and payload stay on disk. At creation.
        shards: Into how many shards a collection is cut; None: the server's choice. At creation.
        replicas: How many copies of a shard there are; None: the server's choice. At creation.
        write_consistency: Copies that must have a write before it counts; None: the server's choice. At creation.
        hnsw_ef: Neighbours that a search keeps in view.
        exact: Whether searches compare with every point instead of using the graph.
        oversampling: With quantisation, how many times ``limit`` are compared by full vectors.

    Raises:
        ValueError: A number is out of range.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_s: float = 2.0
    write_timeout_s: float = 10.0
    prefix: str = "lorebank"
    payload_m: int = 16
    ef_construct: int = 128
    quantization: Literal["none", "int8"] = "none"
    on_disk: bool = False
    shards: int | None = None
    replicas: int | None = None
    write_consistency: int | None = None
    hnsw_ef: int = 128
    exact: bool = False
    oversampling: float = 2.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.write_timeout_s <= 0:
            raise ValueError("timeout_s and write_timeout_s must be positive")
        if min(self.payload_m, self.ef_construct, self.hnsw_ef) < 1 or self.oversampling < 1:
            raise ValueError("payload_m, ef_construct, hnsw_ef and oversampling must be at least 1")
