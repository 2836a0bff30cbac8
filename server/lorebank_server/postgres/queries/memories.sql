-- name: by_id
-- Served by memories_id.
select m.*, u.use_count, u.last_used_time, s.id as superseded_by_id,
    array(select o.id from memories o where o.superseded_by = m.uid order by o.id) as supersedes
from memories m
left join usages u on u.memory = m.uid
left join memories s on s.uid = m.superseded_by
where m.space_id = $1 and m.id = any ($2::text[])

-- name: by_uid
-- Served by memories_pkey.
select m.*, u.use_count, u.last_used_time, s.id as superseded_by_id,
    array(select o.id from memories o where o.superseded_by = m.uid order by o.id) as supersedes
from memories m
left join usages u on u.memory = m.uid
left join memories s on s.uid = m.superseded_by
where m.space_id = $1 and m.uid = any ($2::uuid[])

-- name: by_key
-- Served by memories_key. The caller's own first, then the team's, then the space's.
select m.*, u.use_count, u.last_used_time, s.id as superseded_by_id,
    array(select o.id from memories o where o.superseded_by = m.uid order by o.id) as supersedes
from memories m
join buckets b on b.id = m.bucket_id
left join usages u on u.memory = m.uid
left join memories s on s.uid = m.superseded_by
where m.space_id = $1 and m.key = $2 and m.state in (1, 2, 4, 7)
order by b.scope, m.uid
limit 1

-- name: listed
-- Served by memories_by_bucket; every page orders the whole selection anew.
with selected as materialized (
    select m.uid,
        case $19
            when 'create_time' then extract(epoch from m.create_time)::float8
            when 'update_time' then extract(epoch from m.update_time)::float8
            when 'use_count' then coalesce(
                (select u.use_count from usages u where u.memory = m.uid), 0
            )::float8
            else strength(m.reputation, m.half_life_days, m.reference_time, $4, $20)
        end as value
    from memories m
    where m.space_id = $1 and m.bucket_id = any ($2::bigint[])
        and ($3::smallint[] is null or m.state = any ($3::smallint[]))
        and ($5::timestamptz is null or m.stale_time > $5)
        and selects(m, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
), page as (
    select p.uid, p.value
    from selected p
    where $21::float8 is null
        or case when $24 then (p.value, p.uid) < ($21, $22::uuid) else (p.value, p.uid) > ($21, $22::uuid) end
    order by
        case when $24 then p.value end desc, case when $24 then p.uid end desc,
        case when not $24 then p.value end, case when not $24 then p.uid end
    limit $23
)
select m.*, p.value, u.use_count, u.last_used_time, s.id as superseded_by_id,
    array(select o.id from memories o where o.superseded_by = m.uid order by o.id) as supersedes
from page p
join memories m on m.uid = p.uid
left join usages u on u.memory = m.uid
left join memories s on s.uid = m.superseded_by
order by
    case when $24 then p.value end desc, case when $24 then p.uid end desc,
    case when not $24 then p.value end, case when not $24 then p.uid end

-- name: counted
-- Served by memories_by_bucket.
select count(*)
from memories m
where m.space_id = $1 and m.bucket_id = any ($2::bigint[])
    and ($3::smallint[] is null or m.state = any ($3::smallint[]))
    and ($5::timestamptz is null or m.stale_time > $5) and $4::timestamptz is not null
    and selects(m, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: visible_buckets
-- Served by buckets_space_id_scope_owner_project_key.
select visible_buckets($1, $2, $3, $4::smallint[], $5)

-- name: revisions
-- Served by revisions_pkey.
select r.revision, r.change, r.state, r.body, r.content_hash, r.actor, r.reason, r.run, r.conversation,
    r.create_time
from revisions r
where r.memory = $1 and r.revision > $2
order by r.revision
limit $3

-- name: relations_of
-- Served by relations_edge and relations_by_target. An end that was not asked for must be worth seeing: active or
-- superseded, neither stale nor over.
select r.id, r.source, r.type, r.target, r.strength, r.context, r.create_time,
    s.id as source_id, t.id as target_id
from relations r
join memories s on s.uid = r.source
join memories t on t.uid = r.target
where r.space_id = $1
    and (r.source = any ($2::uuid[]) or r.target = any ($2::uuid[]))
    and (not $7 or (r.source = any ($2::uuid[]) and r.target = any ($2::uuid[])))
    and (s.uid = any ($2::uuid[]) or (s.state in (2, 3) and s.stale_time > $6 and s.valid_until > $6))
    and (t.uid = any ($2::uuid[]) or (t.state in (2, 3) and t.stale_time > $6 and t.valid_until > $6))
    and (cardinality($3::text[]) = 0 or r.type = any ($3::text[]))
    and r.strength >= $4
order by r.strength desc, r.id
limit $5

-- name: answers
-- Served by answers_pkey.
select a.request_id, a.request_hash, a.result
from answers a
where a.space_id = $1 and a.owner = $2 and a.request_id = any ($3::text[]) and a.create_time > $4

-- name: exact_matches
-- Served by memories_by_content. The oldest of equals is the one that counts.
select distinct on (m.content_hash, b.scope, b.project, m.subject)
    m.content_hash, b.scope, b.project, m.subject, m.id
from memories m join buckets b on b.id = m.bucket_id
where m.space_id = $1 and m.owner = $2 and m.state = 2 and m.content_hash = any ($3::bytea[])
order by m.content_hash, b.scope, b.project, m.subject, m.uid

-- name: key_holders
-- Served by memories_key.
select m.key_namespace, m.key, m.id
from unnest($2::text[], $3::text[]) k(namespace, key)
join memories m on m.space_id = $1 and m.key_namespace = k.namespace and m.key = k.key
where m.state in (1, 2, 4, 7)
