"""Some three hundred points in two spaces, and what a search among them must find, by brute force."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np

from lorebank_server.ports.vector_store import Generation, VectorPoint

DIMENSIONS = 24
GENERATION = Generation(number=1, dimensions=DIMENSIONS)
NOW = datetime(2026, 1, 15, 12, 0, 0, 123_456, tzinfo=UTC)
BUCKETS = (11, 12, 13)

_MOMENTS = (None, None, None, NOW - timedelta(days=1), NOW, NOW + timedelta(microseconds=1), NOW + timedelta(days=90))


def unit_vector(seed):
    """Unit length up to half precision, in which every coordinate is exact: what Postgres keeps."""
    vector = np.random.default_rng(seed).normal(size=DIMENSIONS)
    return (vector / np.linalg.norm(vector)).astype(np.float16).astype(np.float32)


def point(number, **changes):
    """A point that every search without a special selection finds."""
    values = {
        "uid": UUID(int=number + 1),
        "version": 1,
        "vector": unit_vector(number),
        "space_id": 1,
        "bucket_id": BUCKETS[0],
        "id": f"id{number:06}",
        "state": 2,
        "stale_time": None,
        "valid_until": None,
        "kind": 1,
        "polarity": 1,
        "category": "swarm/pattern",
        "collection": "",
        "subject": "Deployments",
        "tags": (),
        "agent": "",
        "run": "",
        "owner": "ann",
        "create_time": NOW,
    }
    return VectorPoint(**{**values, **changes})


def many_points():
    """Both spaces use the same numbers for their buckets, and all names, so that only the space tells them apart."""
    random = np.random.default_rng(20260115)

    def one_of(*values):
        return values[random.integers(len(values))]

    return [
        point(
            number,
            uid=UUID(bytes=random.bytes(16)),
            version=int(random.integers(1, 2**40)),
            space_id=one_of(1, 2),
            bucket_id=one_of(*BUCKETS),
            state=one_of(2, 2, 2, 3, 5),
            stale_time=one_of(*_MOMENTS),
            valid_until=one_of(*_MOMENTS),
            kind=one_of(1, 2, 3),
            polarity=one_of(1, 2),
            category=one_of("swarm/pattern", "swarm/supportive", "personal/fact"),
            collection=one_of("", "ops", "billing"),
            subject=one_of("", "Deployments", "deployments", "ÄRGER", "Postgres"),
            tags=tuple(tag for tag in ("ci", "go", "sql", "zürich") if random.random() < 0.4),
            agent=one_of("", "builder", "reviewer"),
            run=one_of("", "run-1", "run-2"),
            owner=one_of("ann", "bob"),
            create_time=NOW - timedelta(days=int(random.integers(0, 4))),
        )
        for number in range(300)
    ]


def expected(points, space_id, buckets, vector, selector, limit):
    """The ids of the nearest of those that the SQL function of the dense leg would select, nearest first."""
    found = [p for p in points if _selected(p, space_id, buckets, selector)]
    matrix = np.array([p.vector for p in found], dtype=np.float64).reshape(len(found), DIMENSIONS)
    query = vector.astype(np.float64)
    cosines = matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))
    return [found[index].uid for index in np.argsort(-cosines)][:limit]


def _selected(p, space_id, buckets, s):
    return all(
        (
            p.space_id == space_id,
            p.bucket_id in buckets,
            p.state in s.states,
            s.include_stale or p.stale_time is None or p.stale_time > NOW,
            p.valid_until is None or p.valid_until > NOW,
            not s.kinds or p.kind in s.kinds,
            not s.categories or p.category in s.categories,
            not s.collections or p.collection in s.collections,
            set(s.tags_all) <= set(p.tags),
            not s.tags_any or set(s.tags_any) & set(p.tags),
            not s.subjects or p.subject in s.subjects or p.subject.lower() in s.subjects,
            not s.agents or p.agent in s.agents,
            not s.runs or p.run in s.runs,
            not s.owners or p.owner in s.owners,
            not s.ids or p.id in s.ids,
            s.created_after is None or p.create_time >= s.created_after,
            s.created_before is None or p.create_time < s.created_before,
            not s.polarity or p.polarity == s.polarity,
        )
    )
