-- name: claim
select pg_try_advisory_lock(hashtextextended('embedding backfill:' || $1::smallint, 0))

-- name: yield
select pg_advisory_unlock(hashtextextended('embedding backfill:' || $1::smallint, 0))

-- name: waiting
-- Served by unembedded_due and memories_pkey. What the model refused comes back when its time has come.
select u.memory, m.revision, m.body, m.create_time
from unembedded u
join memories m on m.uid = u.memory
join spaces s on s.number = u.space_id
where u.not_before <= now() and s.embedding_model = $1
order by u.not_before, u.memory
limit $2

-- name: write
-- Served by memories_pkey and unembedded_pkey. A memory that was revised meanwhile has other words, or is about to: it
-- waits for the next time.
with given as materialized (
    select * from unnest($2::uuid[], $3::int[], $4::bytea[], $5::halfvec[]) g(memory, revision, text_hash, embedding)
), current as materialized (
    select m.uid, m.space_id, m.bucket_id, m.state, m.stale_time, m.valid_until, g.text_hash, g.embedding
    from given g join memories m on m.uid = g.memory and m.revision = g.revision
    for share of m skip locked
), written as (
    insert into embeddings as e (memory, space_id, model, text_hash, embedding, bucket_id, found_until, indexed)
    select c.uid, c.space_id, $1, c.text_hash, c.embedding, c.bucket_id,
        found_until(c.state, c.stale_time, c.valid_until), not waits_for_index(c.space_id, $1)
    from current c
    where keep_generation(c.space_id, $1)
    on conflict (memory, model) do update
    set text_hash = excluded.text_hash, embedding = excluded.embedding, indexed = excluded.indexed
    where e.text_hash <> excluded.text_hash
), settled as (
    delete from unembedded u using current c where u.memory = c.uid returning u.memory
)
select count(*) from settled

-- name: postpone
-- Served by unembedded_pkey. For a minute, then two, four and so on, up to an hour.
update unembedded
set attempts = attempts + 1, not_before = now() + least(interval '1 hour', interval '1 minute' * 2 ^ least(attempts, 6))
where memory = $1
