-- name: credential
-- Served by api_keys_pkey, with the owner's rights: the caller is not known yet.
select * from find_api_key($1)

-- name: open_space
select open_space($1)

-- name: touch_keys
select touch_api_keys($1::text[], $2)

-- name: create_space
-- Served by spaces_id_key.
with created as (
    insert into spaces (
        id, display_name, half_life_days, default_confidence, stale_threshold, quality_policy, language, create_time,
        embedding_model
    )
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    on conflict (id) do nothing
    returning *
)
select s.*, g.model, g.dimensions from created s left join embedding_models g on g.number = s.embedding_model

-- name: space
-- Served by spaces_id_key and embedding_models_pkey.
select s.*, g.model, g.dimensions
from spaces s left join embedding_models g on g.number = s.embedding_model
where s.id = $1

-- name: list_spaces
-- Served by spaces_id_key and embedding_models_pkey.
select s.*, g.model, g.dimensions
from spaces s left join embedding_models g on g.number = s.embedding_model
where s.id > $1
order by s.id
limit $2

-- name: update_space
-- Served by spaces_pkey.
update spaces
set display_name = $2, half_life_days = $3, default_confidence = $4, stale_threshold = $5, quality_policy = $6,
    language = $7, revision = revision + 1
where number = $8 and revision = $9 and id = $1
returning revision

-- name: space_contents
-- Served by memories_by_bucket, with the owner's rights: an admin counts what it may not read.
select c.memories, c.digest from space_contents($1) c

-- name: lock_space
select s.number from spaces s where s.number = $1 for update

-- name: delete_space
delete from spaces where number = $1

-- name: create_key
insert into api_keys (
    id, space_id, secret_hash, display_name, owner, roles, project, create_time, expire_time
)
values ($1, $2, $3, $4, $5, $6::smallint[], $7, $8, $9)

-- name: keys_now_exist
select keys_now_exist()

-- name: list_keys
-- Served by api_keys_by_space.
select k.* from api_keys k where k.space_id = $1 and k.id > $2 order by k.id limit $3

-- name: revoke_key
-- Served by api_keys_pkey.
update api_keys k
set revoke_time = coalesce(k.revoke_time, $3)
where k.space_id = $1 and k.id = $2
returning k.*
