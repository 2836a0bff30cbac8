-- name: lock
select pg_advisory_xact_lock(n.number)
from (
    select distinct hashtextextended(name, 0) as number from unnest($1::text[]) name order by number
) n

-- name: open_buckets
-- Served by buckets_space_id_scope_owner_project_key.
insert into buckets (space_id, scope, owner, project)
select $1, b.scope, b.owner, b.project
from unnest($2::smallint[], $3::text[], $4::text[]) b(scope, owner, project)
where not exists (
    select from buckets o
    where o.space_id = $1 and o.scope = b.scope and o.owner = b.owner and o.project = b.project
)
on conflict do nothing

-- name: bucket_ids
-- Served by buckets_space_id_scope_owner_project_key.
select o.id, o.scope, o.owner, o.project
from unnest($2::smallint[], $3::text[], $4::text[]) b(scope, owner, project)
join buckets o on o.space_id = $1 and o.scope = b.scope and o.owner = b.owner and o.project = b.project

-- name: insert
with given as materialized (
    select r.*, to_tsvector($3::regconfig, r.text) as lexemes
    from jsonb_to_recordset($2::jsonb) r(
        uid uuid, id text, bucket_id bigint, key text, key_namespace text, owner text, body jsonb,
        kind smallint, polarity smallint, category text, collection text, subject text, tags text[],
        agent text, run text, conversation text, content_hash text, text text, reputation float8,
        half_life_days float8, reference_time timestamptz, stale_time timestamptz, valid_until timestamptz,
        create_time timestamptz, reason text
    )
), inserted as (
    insert into memories (
        uid, space_id, bucket_id, id, key, key_namespace, owner, state, revision, body, kind, polarity, category,
        collection, subject, tags, agent, run, conversation, content_hash, lexemes, length, reputation,
        half_life_days, reference_time, stale_time, valid_until, create_time, update_time
    )
    select g.uid, $1, g.bucket_id, g.id, g.key, g.key_namespace, g.owner, 2, 1, g.body, g.kind, g.polarity,
        g.category, g.collection, g.subject, g.tags, g.agent, g.run, g.conversation,
        decode(g.content_hash, 'hex'), g.lexemes,
        (select coalesce(sum(cardinality(l.positions)), 0) from unnest(g.lexemes) l),
        g.reputation, g.half_life_days, g.reference_time, coalesce(g.stale_time, 'infinity'),
        coalesce(g.valid_until, 'infinity'), g.create_time, g.create_time
    from given g
), first_revisions as (
    insert into revisions (
        memory, revision, space_id, change, state, body, content_hash, actor, reason, run, conversation, create_time
    )
    select g.uid, 1, $1, 1, 2, g.body, decode(g.content_hash, 'hex'), g.owner, g.reason, g.run, g.conversation,
        g.create_time
    from given g
), space as materialized (
    select keep_generation($1, $4) as kept where cardinality($5::uuid[]) > 0
), embedded as (
    insert into embeddings (memory, space_id, model, text_hash, embedding, bucket_id, found_until, indexed)
    select g.uid, $1, $4, v.text_hash, v.embedding, g.bucket_id,
        least(coalesce(g.stale_time, 'infinity'), coalesce(g.valid_until, 'infinity')),
        not waits_for_index($1, $4)
    from space s
    cross join unnest($5::uuid[], $6::bytea[], $7::halfvec[]) v(uid, text_hash, embedding)
    join given g on g.uid = v.uid
    where s.kept
)
insert into relations (space_id, id, source, type, target, strength, context, create_time)
select $1, r.id, r.source, r.type, r.target, r.strength, r.context, r.create_time
from jsonb_to_recordset($8::jsonb) r(
    id text, source uuid, type text, target uuid, strength float8, context text, create_time timestamptz
)

-- name: revise
-- Served by memories_pkey. The text is null when search sees the same as before.
with given as materialized (
    select case when $22::text is null then null else to_tsvector($23::regconfig, $22) end as lexemes
), revised as (
    update memories m
    set revision = $3, state = $4, body = $5::jsonb, content_hash = $6, kind = $7, polarity = $8, category = $9,
        collection = $10, subject = $11, tags = $12, agent = $13, run = $14, conversation = $15,
        half_life_days = $16, stale_time = $17, valid_until = $18, update_time = $19, delete_time = $20,
        superseded_by = case when $21 then coalesce($24, m.superseded_by) end,
        lexemes = coalesce(g.lexemes, m.lexemes),
        length = case when g.lexemes is null then m.length else (
            select coalesce(sum(cardinality(l.positions)), 0) from unnest(g.lexemes) l
        ) end
    from given g
    where m.uid = $2 and m.space_id = $1
), payload as (
    update embeddings e
    set found_until = found_until($4::smallint, $17, $18)
    where e.memory = $2 and e.space_id = $1
)
insert into revisions (
    memory, revision, space_id, change, state, body, content_hash, actor, reason, run, conversation, create_time
)
values ($2, $3, $1, $25, $4, $5::jsonb, $6, $26, $27, $28, $29, $19)

-- name: embed
-- Served by embeddings_pkey.
insert into embeddings (memory, space_id, model, text_hash, embedding, bucket_id, found_until, indexed)
select m.uid, m.space_id, $2, $3, $4, m.bucket_id, found_until(m.state, m.stale_time, m.valid_until),
    not waits_for_index(m.space_id, $2)
from memories m
where m.uid = $1 and keep_generation(m.space_id, $2)
on conflict (memory, model) do update
set text_hash = excluded.text_hash, embedding = excluded.embedding, indexed = excluded.indexed

-- name: unembed
-- Served by embeddings_pkey. Vectors of other words would mislead; a memory without one waits to be embedded.
-- The model that is about to be written may stay.
delete from embeddings where space_id = $1 and memory = $2 and model is distinct from $3

-- name: await_embedding
select await_embedding($1::uuid[])

-- name: unlink_superseded
-- Served by relations_by_target.
delete from relations where space_id = $1 and target = $2 and type = 'supersedes'

-- name: cast
-- Served by ballots_pkey.
insert into ballots (memory, voter, run, signal, space_id, reason, create_time)
values ($2, $3, $4, $5, $1, $6, $7)
on conflict (memory, voter, run, signal) do update set reason = excluded.reason

-- name: withdraw
-- Served by ballots_pkey.
delete from ballots
where space_id = $1 and memory = $2 and voter = $3 and run = $4 and signal = any ($5::smallint[])

-- name: tallies
-- Served by ballots_pkey.
select b.memory, b.voter,
    count(*) filter (where b.signal = 2)::int as upvotes,
    count(*) filter (where b.signal = 3)::int as downvotes,
    count(*) filter (where b.signal = 1)::int as citations
from ballots b
where b.space_id = $1 and b.memory = any ($2::uuid[])
group by b.memory, b.voter
order by b.memory, b.voter

-- name: record_standing
select record_standing($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: record_answers
-- Served by answers_pkey.
insert into answers (space_id, owner, request_id, request_hash, result, create_time)
select $1, $2, a.request_id, a.request_hash, a.result, $4
from jsonb_to_recordset($3::jsonb) a(request_id text, request_hash text, result jsonb)
on conflict (space_id, owner, request_id) do update
set request_hash = excluded.request_hash, result = excluded.result, create_time = excluded.create_time
where answers.create_time <= $4 - interval '24 hours'
