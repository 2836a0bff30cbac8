-- name: enqueue_space
-- Served by embeddings_by_bucket.
insert into outbox (memory, space_id, bucket_id)
select e.memory, e.space_id, e.bucket_id
from embeddings e
where e.space_id = $1 and e.model = $2
order by e.memory

-- name: latest
-- Served by outbox_pkey.
select coalesce(max(o.sequence), 0) from outbox o

-- name: waiting
-- Served by outbox_by_bucket.
select count(*)::int from outbox o where o.space_id = $1 and o.sequence <= $2 and o.apply_time is null

-- name: unused
-- Served by embeddings_by_bucket. Generations that no space is searched by, and of which there are no vectors.
select g.model, m.dimensions
from outbox_generations g join embedding_models m on m.number = g.model
where not exists (
    select from spaces s
    where s.embedding_model = g.model
        or exists (select from embeddings e where e.space_id = s.number and e.model = g.model)
)
order by g.model

-- name: forget
-- Served by outbox_generations_pkey and embeddings_by_bucket. One that came into use meanwhile is to be filled again.
with used as materialized (
    select exists (
        select from spaces s
        where s.embedding_model = $1
            or exists (select from embeddings e where e.space_id = s.number and e.model = $1)
    ) as used
), kept as (
    update outbox_generations g set filled = false from used u where g.model = $1 and u.used
)
delete from outbox_generations g using used u where g.model = $1 and not u.used
