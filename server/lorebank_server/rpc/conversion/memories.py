"""Memories, revisions and relations on their way out."""

from lorebank.v1 import memory_pb2, relation_pb2, revision_pb2
from lorebank_server.domain.memory import Memory, Relation, Revision, Usage
from lorebank_server.domain.quality import Quality
from lorebank_server.rpc.conversion.drafts import write_draft, write_heading
from lorebank_server.rpc.conversion.values import set_time


def from_memory(memory: Memory, view: int = memory_pb2.VIEW_FULL) -> memory_pb2.Memory:
    """The message of a memory.

    VIEW_SUMMARY leaves out card, context, keywords, attributes, applicability, provenance and usage; any other view
    has every field.
    """
    target = memory_pb2.Memory()
    write_memory(memory, target, view)
    return target


def write_memory(memory: Memory, target: memory_pb2.Memory, view: int = memory_pb2.VIEW_FULL) -> None:
    """As ``from_memory``, into a fresh message that is part of an answer."""
    if view == memory_pb2.VIEW_SUMMARY:
        write_heading(memory.draft, target)
    else:
        write_draft(memory.draft, target)
        _write_usage(memory.usage, target.usage)
    _write_record(memory, target)
    _write_quality(memory.quality, target.quality)


def write_revision(revision: Revision, target: revision_pb2.Revision) -> None:
    """Write a revision into a fresh message; its memory is without quality and usage."""
    target.revision = revision.memory.revision
    write_draft(revision.memory.draft, target.memory)
    _write_record(revision.memory, target.memory)
    target.change = int(revision.change)  # type: ignore[assignment]
    target.actor = revision.actor
    target.reason = revision.reason
    set_time(target.create_time, revision.create_time)
    target.run = revision.run
    target.conversation = revision.conversation


def write_relation(relation: Relation, target: relation_pb2.Relation) -> None:
    """Write a relation into a fresh message."""
    target.id = relation.id
    target.source = relation.source
    target.type = relation.type
    target.target = relation.target
    target.strength = relation.strength
    target.context = relation.context
    set_time(target.create_time, relation.create_time)


def _write_record(memory: Memory, target: memory_pb2.Memory) -> None:
    target.id = memory.id
    target.uid = str(memory.uid)
    target.etag = memory.etag
    target.state = int(memory.state)  # type: ignore[assignment]
    target.revision = memory.revision
    target.owner = memory.owner
    set_time(target.create_time, memory.create_time)
    set_time(target.update_time, memory.update_time)
    set_time(target.validate_time, memory.validate_time)
    set_time(target.delete_time, memory.delete_time)
    target.supersedes.extend(memory.supersedes)
    target.superseded_by = memory.superseded_by
    target.content_hash = memory.content_hash


def _write_quality(quality: Quality, target: memory_pb2.Quality) -> None:
    target.retention = quality.retention
    target.reputation = quality.reputation
    target.strength = quality.strength
    target.stale = quality.stale
    target.upvotes = quality.upvotes
    target.downvotes = quality.downvotes
    target.citations = quality.citations
    target.successes = quality.successes
    target.failures = quality.failures
    target.policy = quality.policy


def _write_usage(usage: Usage, target: memory_pb2.Usage) -> None:
    target.use_count = usage.use_count
    set_time(target.last_used_time, usage.last_used_time)
