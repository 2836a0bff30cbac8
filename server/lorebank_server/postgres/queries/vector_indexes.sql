-- name: claim
select pg_try_advisory_lock(hashtextextended('vector_indexes', 0))

-- name: changes
-- Rows of embeddings written so far, as Postgres last counted.
select coalesce(sum(s.n_tup_ins + s.n_tup_upd + s.n_tup_del), 0)::bigint
from pg_stat_user_tables s
where s.relid = 'embeddings'::regclass

-- name: due
-- Whether somebody asked for a build, or an index is left whose space or generation is gone.
select
    exists (
        select from vector_indexes v
        where not v.ready and exists (select from embeddings e where e.space_id = v.space_id and e.model = v.model)
    )
    or exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indrelid = 'embeddings'::regclass and c.relname like 'embeddings\_near\_%'
            and not exists (select from vector_indexes v where vector_index_name(v.space_id, v.model) = c.relname)
    )

-- name: census
-- Served by embeddings_by_bucket alone. A generation that a space moves to gets its index when the move asks for it.
select c.space_id, c.model, c.vectors, c.waiting, m.dimensions, v.space_id is not null as begun,
    coalesce(v.ready, false) as ready, vector_index_name(c.space_id, c.model) as name
from (
    select e.space_id, e.model, count(*) as vectors, count(*) filter (where not e.indexed) as waiting
    from embeddings e
    group by e.space_id, e.model
) c
join embedding_models m on m.number = c.model
join spaces s on s.number = c.space_id
left join vector_indexes v on v.space_id = c.space_id and v.model = c.model
where s.embedding_model = c.model or v.space_id is not null
order by c.space_id, c.model

-- name: begin_build
-- From here on what is stored waits outside.
insert into vector_indexes as v (space_id, model, documents, ready, build_time)
values ($1, $2, 0, false, now())
on conflict (space_id, model) do update set ready = false, build_time = excluded.build_time

-- name: gather
-- Served by embeddings_waiting.
update embeddings e
set indexed = true
where e.space_id = $1 and e.model = $2 and (e.memory, e.model) in (
    select w.memory, w.model
    from embeddings w
    where w.space_id = $1 and w.model = $2 and not w.indexed
    order by w.memory
    limit $3
    for update skip locked
)

-- name: finish_build
update vector_indexes v
set ready = true, documents = $3, build_time = now()
where v.space_id = $1 and v.model = $2

-- name: strays
-- Indexes whose space or generation is gone.
select c.relname as name
from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = 'embeddings'::regclass and c.relname like 'embeddings\_near\_%'
    and not exists (select from vector_indexes v where vector_index_name(v.space_id, v.model) = c.relname)

-- name: request
-- Served by embeddings_by_bucket. Have an index built, if there is one or it is worth having one; one that is ready is
-- built again if $4 says so. Until it is done searches are exact.
insert into vector_indexes as v (space_id, model, documents, ready, build_time)
select $1, $2, 0, false, now()
where (select count(*) from embeddings e where e.space_id = $1 and e.model = $2) >= $3
    or exists (select from vector_indexes o where o.space_id = $1 and o.model = $2)
on conflict (space_id, model) do update set ready = v.ready and not $4

-- name: progress
-- Served by embeddings_by_bucket; only one is built at a time.
select count(*)::int as vectors,
    count(*) = 0 or coalesce(
        (select v.ready from vector_indexes v where v.space_id = $1 and v.model = $2), true
    ) as ready,
    coalesce((
        select p.tuples_done
        from pg_stat_progress_create_index p
        where p.index_relid = to_regclass(vector_index_name($1, $2))
    ), 0)::int as built
from embeddings e
where e.space_id = $1 and e.model = $2

-- name: discard
-- Those of other generations than this one; the background drops the indexes.
delete from vector_indexes where space_id = $1 and model <> $2
