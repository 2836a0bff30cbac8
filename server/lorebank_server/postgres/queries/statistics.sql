-- name: due
-- Served by memories_by_bucket alone. A bucket counts by itself, so that nobody's memories decide how another's are
-- counted.
with counts as materialized (
    select m.space_id, m.bucket_id, count(*) as documents, sum(m.length) as total_length
    from memories m
    where m.state = 2
    group by m.space_id, m.bucket_id
)
select c.space_id, c.bucket_id
from counts c left join bucket_statistics s on s.bucket_id = c.bucket_id
where (s.bucket_id is null and c.documents >= 100)
    or abs(c.documents - s.documents) * 10 > s.documents
    or abs(c.total_length - s.total_length) * 10 > s.total_length
union all
select s.space_id, s.bucket_id
from bucket_statistics s
where s.documents > 0 and not exists (select from counts c where c.bucket_id = s.bucket_id)
order by 1, 2

-- name: changes
-- Rows of memories written so far, as Postgres last counted.
select coalesce(sum(s.n_tup_ins + s.n_tup_upd + s.n_tup_del), 0)::bigint
from pg_stat_user_tables s
where s.relid = 'memories'::regclass

-- name: claim
select pg_try_advisory_xact_lock(hashtextextended('statistics:' || $1::bigint, 0))

-- name: drop_terms
-- Served by bucket_terms_pkey.
delete from bucket_terms where bucket_id = $1

-- name: build_terms
-- Served by memories_by_bucket.
insert into bucket_terms (bucket_id, term, documents)
select $1::bigint, t.lexeme, count(*)
from memories m cross join lateral unnest(m.lexemes) t
where m.bucket_id = $1 and m.state = 2
group by t.lexeme

-- name: build_totals
-- Served by memories_by_bucket.
insert into bucket_statistics as s (bucket_id, space_id, version, documents, total_length, build_time)
select $1, $2, 1, count(*), coalesce(sum(m.length), 0), now()
from memories m
where m.bucket_id = $1 and m.state = 2
on conflict (bucket_id) do update
set version = s.version + 1, documents = excluded.documents, total_length = excluded.total_length,
    build_time = excluded.build_time

-- name: unanalyzed
-- Whether the planner's own statistics are behind by more than a tenth.
select exists (
    select from pg_stat_user_tables s join pg_class c on c.oid = s.relid
    where s.relid in ('memories'::regclass, 'embeddings'::regclass)
        and s.n_mod_since_analyze > 200 + 0.1 * greatest(c.reltuples, 0)
)

-- name: analyze
analyze memories, embeddings, revisions, relations, buckets

-- name: sweep_answers
-- Served by answers_by_time.
delete from answers where create_time < now() - interval '24 hours'
