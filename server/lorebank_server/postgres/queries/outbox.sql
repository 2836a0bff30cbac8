-- name: hold
-- As long as this session lives, nobody switches the outbox off.
select pg_advisory_lock_shared(hashtextextended('outbox in use', 0))

-- name: enable
select enable_outbox()

-- name: disable
select disable_outbox()

-- name: claim
-- Served by outbox_pkey and outbox_by_memory. All rows of a claimed memory are announced, those not due included. The
-- lock of a memory is held until it is released or the session ends.
with due as materialized (
    select w.memory
    from (
        select o.memory, o.sequence
        from outbox o
        where o.not_before <= clock_timestamp()
        order by o.sequence
        limit greatest(16 * $1, 1024)
    ) w
    group by w.memory
    order by min(w.sequence)
), locked as materialized (
    select d.memory from due d where pg_try_advisory_lock(hashtextextended('outbox:' || d.memory, 0)) limit $1
), announced as (
    update outbox o
    set attempts = o.attempts + 1,
        uncertain_before = case when o.uncertain_until > clock_timestamp() then o.uncertain_until end,
        uncertain_until = clock_timestamp() + make_interval(secs => $2)
    from locked l
    where o.memory = l.memory
    returning o.memory, o.sequence, o.attempts
)
select l.memory, a.sequence, a.attempts from locked l left join announced a on a.memory = l.memory

-- name: states
-- Served by embeddings_pkey and memories_pkey.
select e.memory, e.model, g.dimensions, e.version, e.embedding, m.space_id, m.bucket_id, m.id, m.state,
    nullif(m.stale_time, 'infinity') as stale_time, nullif(m.valid_until, 'infinity') as valid_until, m.kind, m.polarity, m.category, m.collection, m.subject, m.tags, m.agent, m.run, m.owner,
    m.create_time
from embeddings e
join memories m on m.uid = e.memory
join embedding_models g on g.number = e.model
where e.memory = any ($1::uuid[])
order by e.model, e.memory

-- name: complete
-- Served by outbox_pkey. Only what nobody has announced since.
with claimed as materialized (
    select c.sequence, c.attempts from unnest($1::bigint[], $2::int[]) c(sequence, attempts)
), kept as (
    update outbox o
    set not_before = o.uncertain_before, uncertain_until = o.uncertain_before, apply_time = clock_timestamp()
    from claimed c
    where o.sequence = c.sequence and o.attempts = c.attempts and o.uncertain_before is not null
)
delete from outbox o using claimed c
where o.sequence = c.sequence and o.attempts = c.attempts and o.uncertain_before is null

-- name: postpone
-- Served by outbox_pkey. Doubling from $3 to $4 seconds, less up to a half of it by chance.
update outbox o
set not_before = clock_timestamp() + make_interval(
    secs => least($4::float8, $3::float8 * power(2::float8, least(o.attempts, 30) - 1)) * (0.5 + random() / 2)
)
from unnest($1::bigint[], $2::int[]) c(sequence, attempts)
where o.sequence = c.sequence and o.attempts = c.attempts

-- name: release
select pg_advisory_unlock(hashtextextended('outbox:' || c.memory, 0)) from unnest($1::uuid[]) c(memory)

-- name: generations
select g.model, m.dimensions, g.swept
from outbox_generations g join embedding_models m on m.number = g.model
order by g.model

-- name: claim_filling
select pg_try_advisory_lock(hashtextextended('outbox filling', 0))

-- name: release_filling
select pg_advisory_unlock(hashtextextended('outbox filling', 0))

-- name: begin_filling
-- Returns whether it was filled: until it is said again, it counts as not.
with known as materialized (
    select g.filled from outbox_generations g where g.model = $1
), begun as (
    insert into outbox_generations (model) values ($1) on conflict (model) do update set filled = false
)
select coalesce((select k.filled from known k), false)

-- name: finish_filling
with enqueued as materialized (
    select enqueue_generation($1) where $2
)
update outbox_generations g
set filled = true, swept = g.swept and not $2
where g.model = $1 and (select count(*) from enqueued) >= 0

-- name: enqueue_strays
-- Served by embeddings_pkey.
insert into outbox (memory, space_id, bucket_id)
select f.memory, f.space_id, 0
from unnest($2::uuid[], $3::int[]) f(memory, space_id)
where not exists (select from embeddings e where e.memory = f.memory and e.model = $1)

-- name: finish_sweep
update outbox_generations set swept = true where model = $1

-- name: backlog
select count(*) as rows, min(o.enqueue_time) as oldest from outbox o where o.apply_time is null

-- name: pending
-- Served by outbox_by_bucket, memories_pkey and embeddings_pkey, with the owner's rights.
select c.uid, c.similarity
from pending_candidates(
    $1, $21, $2::bigint[], $3::smallint[], $5, $4, $19, $20,
    $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
) c

-- name: similarities
-- Served by embeddings_pkey, with the owner's rights.
select s.uid, s.similarity from exact_similarities($1, $3, $2::bigint[], $4, $5::uuid[]) s
