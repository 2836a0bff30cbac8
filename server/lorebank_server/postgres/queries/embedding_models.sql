-- name: others
-- Served by embeddings_by_model.
select m.model, m.dimensions
from embedding_models m
where (m.model, m.dimensions) <> ($1, $2) and exists (select from embeddings e where e.model = m.number)
order by m.number

-- name: number
-- Served by embedding_models_model_dimensions_key.
with added as (
    insert into embedding_models (model, dimensions) values ($1, $2) on conflict do nothing returning number
)
select number from added
union all
select m.number from embedding_models m where m.model = $1 and m.dimensions = $2
limit 1

-- name: count_outdated
select count(*)
from memories m left join embeddings e on e.memory = m.uid and e.model = $1
where e.memory is null

-- name: outdated
-- Served by memories_pkey and embeddings_pkey.
select m.uid, m.body, m.create_time
from memories m left join embeddings e on e.memory = m.uid and e.model = $1
where e.memory is null
order by m.uid
limit $2
