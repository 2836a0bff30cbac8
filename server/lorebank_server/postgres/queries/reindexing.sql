-- name: claim
select pg_try_advisory_lock(hashtextextended('reindexing:' || $1::int, 0))

-- name: release
select pg_advisory_unlock(hashtextextended('reindexing:' || $1::int, 0))

-- name: census
-- Served by memories_by_bucket and embeddings_by_bucket alone; comparing them memory by memory takes ten times as long.
select
    (select count(*) from memories m where m.space_id = $1)::int as memories,
    (select count(*) from embeddings e where e.space_id = $1 and e.model = $2)::int as embedded

-- name: bare
-- Served by memories_by_create_time and embeddings_pkey.
select m.uid, m.revision, m.body, m.create_time
from memories m
where m.space_id = $1 and (m.create_time, m.uid) > (coalesce($3::timestamptz, '-infinity'), $4) and m.uid <> all ($5::uuid[])
    and not exists (select from embeddings e where e.memory = m.uid and e.model = $2)
order by m.create_time, m.uid
limit $6

-- name: write
-- Served by memories_pkey. A memory that was revised meanwhile has other words, or is about to.
with given as materialized (
    select * from unnest($3::uuid[], $4::int[], $5::bytea[], $6::halfvec[]) g(memory, revision, text_hash, embedding)
), current as materialized (
    select m.uid, m.bucket_id, m.state, m.stale_time, m.valid_until, g.text_hash, g.embedding
    from given g join memories m on m.uid = g.memory and m.revision = g.revision and m.space_id = $1
    for share of m skip locked
), written as (
    insert into embeddings (memory, space_id, model, text_hash, embedding, bucket_id, found_until, indexed)
    select c.uid, $1, $2, c.text_hash, c.embedding, c.bucket_id, found_until(c.state, c.stale_time, c.valid_until),
        not waits_for_index($1, $2)
    from current c
    on conflict do nothing
)
select c.uid from current c

-- name: claim_generation
select claim_generation($1)

-- name: switch
-- Served by spaces_pkey, memories_pkey and embeddings_pkey.
with awaiting as (
    insert into unembedded (memory, space_id)
    select m.uid, m.space_id
    from memories m
    where m.uid = any ($3::uuid[]) and m.space_id = $1
        and not exists (select from embeddings e where e.memory = m.uid and e.model = $2)
    on conflict (memory) do update set attempts = 0, not_before = '-infinity'
)
update spaces
set embedding_model = $2, embedding_generation = embedding_generation + 1
where number = $1
returning number

-- name: former_generations
-- Served by embeddings_by_bucket. Whatever the space is searched by, others are former.
select coalesce(array_agg(g.number), '{}')
from embedding_models g join spaces s on s.number = $1 and g.number is distinct from s.embedding_model
where exists (select from embeddings e where e.space_id = $1 and e.model = g.number)

-- name: count_former
-- Served by embeddings_by_bucket.
select count(*)::int from embeddings e where e.space_id = $1 and e.model = any ($2::smallint[])

-- name: remove_former
-- Served by embeddings_by_bucket and embeddings_pkey.
with former as materialized (
    select e.memory, e.model from embeddings e where e.space_id = $1 and e.model = any ($2::smallint[]) limit $3
), removed as (
    delete from embeddings e using former f where e.memory = f.memory and e.model = f.model returning e.memory
)
select count(*)::int from removed
