-- name: facts
-- Served by spaces_pkey, unembedded_by_space and outbox_by_bucket.
select s.embedding_model as model, m.dimensions,
    (select count(*) from unembedded u where u.space_id = s.number) as unembedded,
    (select count(distinct o.memory) from outbox o where o.space_id = s.number and o.apply_time is null) as pending,
    (select min(o.enqueue_time) from outbox o where o.space_id = s.number and o.apply_time is null) as oldest,
    (select max(g.number) from schema_migrations g) as schema,
    current_setting('server_version') as postgres_version
from spaces s left join embedding_models m on m.number = s.embedding_model
where s.number = $1

-- name: spaces
select s.number from spaces s

-- name: generations
-- Served by embeddings_by_bucket.
select m.number as model, m.dimensions
from embedding_models m
where exists (
    select from spaces s
    where ($1::int is null or s.number = $1)
        and exists (select from embeddings e where e.space_id = s.number and e.model = m.number)
)
order by m.number

-- name: memories
-- Served by memories_by_bucket and embeddings_pkey.
select m.uid, m.body, m.create_time, e.text_hash,
    (e.space_id, e.bucket_id, e.found_until)
        is not distinct from (m.space_id, m.bucket_id, found_until(m.state, m.stale_time, m.valid_until)) as aligned
from memories m left join embeddings e on e.memory = m.uid and e.model = $2
where m.space_id = $1

-- name: versions
-- Served by embeddings_by_bucket; sorted once.
select e.memory, e.version from embeddings e where e.space_id = $1 and e.model = $2 order by e.memory

-- name: current
-- Served by embeddings_pkey and outbox_by_memory.
select u.memory, e.version, exists (select from outbox o where o.memory = u.memory) as pending
from unnest($2::uuid[]) u(memory) left join embeddings e on e.memory = u.memory and e.model = $1

-- name: strays
-- Served by embeddings_by_bucket and memories_pkey.
select distinct e.memory
from embeddings e
where e.space_id = $1 and not exists (select from memories m where m.uid = e.memory)
order by e.memory

-- name: await_embedding
-- Served by memories_pkey.
insert into unembedded (memory, space_id)
select m.uid, m.space_id from memories m where m.uid = any ($1::uuid[])
on conflict (memory) do update set attempts = 0, not_before = '-infinity'

-- name: align
-- Served by memories_pkey and embeddings_pkey.
update embeddings e
set space_id = m.space_id, bucket_id = m.bucket_id, found_until = found_until(m.state, m.stale_time, m.valid_until)
from memories m
where m.uid = any ($1::uuid[]) and e.memory = m.uid

-- name: discard
-- Served by embeddings_pkey.
delete from embeddings e
where e.memory = any ($1::uuid[]) and not exists (select from memories m where m.uid = e.memory)

-- name: advance
-- A database that was restored from a backup gives out versions again that the store has seen.
select setval('embedding_versions', greatest($1::bigint, nextval('embedding_versions')))

-- name: renew
-- Served by embeddings_pkey. The row's own triggers renew the version and enqueue the memory.
update embeddings e set found_until = e.found_until where e.memory = any ($2::uuid[]) and e.model = $1

-- name: enqueue
insert into outbox (memory, space_id, bucket_id)
select p.memory, p.space_id, 0 from unnest($1::uuid[], $2::int[]) p(memory, space_id)
