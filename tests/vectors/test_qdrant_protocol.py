"""What goes over the wire is what every Qdrant server from 1.15 on understands, and nothing that it would ignore."""

from datetime import timedelta

import numpy as np
import pytest
from vector_points import BUCKETS, GENERATION, NOW, point, unit_vector

from lorebank_server.domain.memory import Kind, Polarity, State
from lorebank_server.domain.selector import Selector

EVERYTHING = Selector(
    kinds=(Kind.SEMANTIC,),
    categories=("swarm/pattern",),
    collections=("ops",),
    tags_all=("a",),
    tags_any=("b", "c"),
    subjects=("d",),
    states=(State.ACTIVE, State.ARCHIVED),
    agents=("e",),
    runs=("f",),
    owners=("g",),
    ids=("h",),
    created_after=NOW - timedelta(days=1),
    created_before=NOW,
    polarity=Polarity.NEGATIVE,
)

SINCE_1_15 = {
    "CollectionExistsRequest.collection_name",
    "Condition.field",
    "CreateCollection.collection_name",
    "CreateCollection.hnsw_config",
    "CreateCollection.on_disk_payload",
    "CreateCollection.quantization_config",
    "CreateCollection.replication_factor",
    "CreateCollection.shard_number",
    "CreateCollection.vectors_config",
    "CreateCollection.write_consistency_factor",
    "CreateFieldIndexCollection.collection_name",
    "CreateFieldIndexCollection.field_index_params",
    "CreateFieldIndexCollection.field_name",
    "CreateFieldIndexCollection.field_type",
    "CreateFieldIndexCollection.wait",
    "DatetimeRange.gt",
    "DatetimeRange.gte",
    "DatetimeRange.lt",
    "DeleteCollection.collection_name",
    "DeletePoints.collection_name",
    "DeletePoints.ordering",
    "DeletePoints.points",
    "DeletePoints.wait",
    "DenseVector.data",
    "FieldCondition.datetime_range",
    "FieldCondition.key",
    "FieldCondition.match",
    "FieldCondition.range",
    "Filter.must",
    "GetCollectionInfoRequest.collection_name",
    "HnswConfigDiff.ef_construct",
    "HnswConfigDiff.m",
    "HnswConfigDiff.payload_m",
    "IntegerIndexParams.lookup",
    "IntegerIndexParams.range",
    "KeywordIndexParams.is_tenant",
    "ListValue.values",
    "Match.integer",
    "Match.integers",
    "Match.keyword",
    "Match.keywords",
    "PayloadIncludeSelector.fields",
    "PayloadIndexParams.datetime_index_params",
    "PayloadIndexParams.integer_index_params",
    "PayloadIndexParams.keyword_index_params",
    "PointId.uuid",
    "PointStruct.id",
    "PointStruct.payload",
    "PointStruct.vectors",
    "PointsIdsList.ids",
    "PointsSelector.points",
    "QuantizationConfig.scalar",
    "QuantizationSearchParams.ignore",
    "QuantizationSearchParams.oversampling",
    "QuantizationSearchParams.rescore",
    "Query.nearest",
    "QueryPoints.collection_name",
    "QueryPoints.filter",
    "QueryPoints.limit",
    "QueryPoints.params",
    "QueryPoints.query",
    "QueryPoints.timeout",
    "QueryPoints.with_payload",
    "QueryPoints.with_vectors",
    "Range.lt",
    "RepeatedIntegers.integers",
    "RepeatedStrings.strings",
    "ScalarQuantization.always_ram",
    "ScalarQuantization.quantile",
    "ScalarQuantization.type",
    "ScrollPoints.collection_name",
    "ScrollPoints.filter",
    "ScrollPoints.limit",
    "ScrollPoints.offset",
    "ScrollPoints.timeout",
    "ScrollPoints.with_payload",
    "ScrollPoints.with_vectors",
    "SearchParams.exact",
    "SearchParams.hnsw_ef",
    "SearchParams.indexed_only",
    "SearchParams.quantization",
    "UpsertPoints.collection_name",
    "UpsertPoints.ordering",
    "UpsertPoints.points",
    "UpsertPoints.wait",
    "Value.integer_value",
    "Value.list_value",
    "Value.string_value",
    "Vector.dense",
    "VectorInput.dense",
    "VectorParams.distance",
    "VectorParams.on_disk",
    "VectorParams.size",
    "Vectors.vector",
    "VectorsConfig.params",
    "WithPayloadSelector.enable",
    "WithPayloadSelector.include",
    "WithVectorsSelector.enable",
    "WriteOrdering.type",
}
"""Compared with the protocol's definition as released with 1.15.0."""

SINCE_1_16 = {
    "Condition.filter",
    "Condition.has_id",
    "Filter.should",
    "HasIdCondition.has_id",
    "Range.lte",
    "UpsertPoints.update_filter",
}
"""The condition on an upsert, the last of which is new in 1.16; sent to no earlier server."""


def fields_of(message):
    """Every field that is set in a message and in the messages within it."""
    for field, value in message.ListFields():
        if field.containing_type.file.package == "qdrant":
            yield f"{field.containing_type.name}.{field.name}"
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = value.values()
        else:
            inner = [value] if hasattr(value, "ListFields") else value
        for part in inner:
            yield from fields_of(part)


async def do_everything(store):
    await store.check()
    await store.prepare(GENERATION)
    await store.upsert(GENERATION, [point(0, tags=("a",), stale_time=NOW), point(1)])
    await store.prepare(GENERATION)
    await store.search(GENERATION, 1, BUCKETS, unit_vector(0), EVERYTHING, now=NOW, limit=10)
    await store.scan(GENERATION, space_id=1, after=point(0).uid, limit=10)
    await store.delete(GENERATION, [point(0).uid])
    await store.drop(GENERATION)


@pytest.mark.parametrize(("version", "allowed"), [("1.15.0", SINCE_1_15), ("1.16.0", SINCE_1_15 | SINCE_1_16)])
async def test_only_fields_that_the_server_knows_are_sent(version, allowed, double, connect):
    double.version = version
    await do_everything(
        connect(quantization="int8", on_disk=True, shards=2, replicas=2, write_consistency=2, exact=True)
    )
    assert allowed == {name for _, request in double.requests for name in fields_of(request)}


async def test_every_field_in_a_condition_is_indexed(double, connect):
    await do_everything(connect())
    indexed = {request.field_name for request in double.sent("CreateFieldIndex")}
    conditions = [
        *(condition for request in double.sent("Query") for condition in request.filter.must),
        *(condition for request in double.sent("Scroll") for condition in request.filter.must),
        *(
            condition
            for request in double.sent("Upsert")
            for either in request.update_filter.should
            for condition in either.filter.must
        ),
    ]
    used = {condition.field.key for condition in conditions if condition.HasField("field")}
    assert {"fields"} <= indexed
    assert used <= indexed
    assert {"space", "bucket", "state", "create_time", "version"} <= used


async def test_each_space_is_a_tenant_with_a_graph_of_its_own(double, connect):
    await connect(payload_m=24, ef_construct=200).prepare(GENERATION)
    [creation] = double.sent("CreateCollection")
    assert (creation.hnsw_config.m, creation.hnsw_config.payload_m, creation.hnsw_config.ef_construct) == (0, 24, 200)
    tenants = [
        request.field_name
        for request in double.sent("CreateFieldIndex")
        if request.field_index_params.keyword_index_params.is_tenant
    ]
    assert tenants == ["space"]


async def test_unset_choices_are_left_to_the_server(double, connect):
    await connect().prepare(GENERATION)
    [creation] = double.sent("CreateCollection")
    chosen = ("shard_number", "replication_factor", "write_consistency_factor", "quantization_config")
    assert not any(creation.HasField(name) for name in chosen)
    assert not creation.on_disk_payload


async def test_settings_of_a_search_are_sent_with_it(double, connect):
    store = connect(hnsw_ef=77, exact=False, quantization="int8", oversampling=3.5)
    await store.prepare(GENERATION)
    await store.search(GENERATION, 1, BUCKETS, unit_vector(0), Selector(), now=NOW, limit=10)
    [request] = double.sent("Query")
    params = request.params
    assert (params.hnsw_ef, params.exact) == (77, False)
    assert (params.quantization.rescore, params.quantization.oversampling) == (True, 3.5)


async def test_the_query_is_rounded_to_half_precision_as_postgres_rounds_it(double, connect):
    store = connect()
    await store.prepare(GENERATION)
    fine = (unit_vector(0) * np.float32(1.0001)).astype(np.float32)
    await store.search(GENERATION, 1, BUCKETS, fine, Selector(), now=NOW, limit=10)
    [request] = double.sent("Query")
    sent = np.array(request.query.nearest.dense.data, dtype=np.float32)
    assert not np.array_equal(sent, fine)
    assert np.array_equal(sent, fine.astype(np.float16).astype(np.float32))


async def test_a_point_carries_what_is_filtered_by_and_no_more(double, connect):
    store = connect()
    await store.prepare(GENERATION)
    moment = NOW + timedelta(days=1)
    await store.upsert(GENERATION, [point(0, subject="Ärger", tags=("a", "b"), stale_time=moment)])
    [request] = double.sent("Upsert")
    stored = dict(request.points[0].payload)
    assert {request.field_name for request in double.sent("CreateFieldIndex")} == set(stored)
    assert [value.string_value for value in stored["subject"].list_value.values] == ["Ärger", "ärger"]
    assert [value.string_value for value in stored["tags"].list_value.values] == ["a", "b"]
    assert stored["stale_time"].string_value == "2026-01-16T12:00:00.123456+00:00"
    assert stored["valid_until"].string_value == "9999-12-31T23:59:59.999999+00:00"
    assert stored["space"].string_value == "1"
    assert stored["bucket"].integer_value == BUCKETS[0]
