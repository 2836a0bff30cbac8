-- name: number
-- Served by embedding_models_model_dimensions_key.
select m.number from embedding_models m where m.model = $1 and m.dimensions = $2

-- name: add
insert into embedding_models (model, dimensions) values ($1, $2) on conflict do nothing

-- name: vacant
-- Served by embeddings_by_bucket. Spaces without vectors have no model to keep to.
select s.number
from spaces s
where s.embedding_model is distinct from $1 and not exists (select from embeddings e where e.space_id = s.number)
order by s.number

-- name: claim
select claim_generation($1)

-- name: adopt
-- Served by spaces_pkey and embeddings_by_bucket.
update spaces s
set embedding_model = $2
where s.number = $1 and not exists (select from embeddings e where e.space_id = s.number)

-- name: others
select distinct m.number, m.model, m.dimensions
from spaces s join embedding_models m on m.number = s.embedding_model
where m.number <> all ($1::smallint[])
order by m.number

-- name: elsewhere
select m.model, m.dimensions, count(*) as spaces
from spaces s join embedding_models m on m.number = s.embedding_model
where m.number <> $1
group by m.number
order by m.number

-- name: count_outdated
select count(*)
from memories m left join embeddings e on e.memory = m.uid and e.model = $1
where e.memory is null

-- name: outdated
-- Served by memories_pkey and embeddings_pkey.
select m.uid, m.body, m.create_time
from memories m left join embeddings e on e.memory = m.uid and e.model = $1
where e.memory is null and m.uid > $2
order by m.uid
limit $3

-- name: embed
-- Served by memories_pkey and embeddings_pkey.
insert into embeddings (memory, space_id, model, text_hash, embedding, bucket_id, found_until, indexed)
select m.uid, m.space_id, $2, $3, $4, m.bucket_id, found_until(m.state, m.stale_time, m.valid_until),
    not waits_for_index(m.space_id, $2)
from memories m
where m.uid = $1
on conflict do nothing

-- name: switch
-- The indexes of the former vectors are dropped by the background of the next server.
with switched as (
    update spaces
    set embedding_model = $1, embedding_generation = embedding_generation + 1
    where embedding_model is distinct from $1
), unindexed as (
    delete from vector_indexes where model <> $1
)
delete from embeddings where model <> $1
