-- name: plan
-- Visibility is resolved and the query's lexemes are counted. Served by buckets_space_id_scope_owner_project_key,
-- memories_by_bucket and memories_by_lexeme.
with query as materialized (
    select
        visible_buckets($1, $4, $5, $6::smallint[], $7) as buckets,
        tsvector_to_array(to_tsvector($3::regconfig, $2)) as terms
)
select q.buckets, q.terms, t.documents, t.total_length, t.frequencies
from query q cross join lateral term_statistics($1, q.buckets, q.terms) t

-- name: lexical_candidates
-- Served by memories_by_lexeme, with the owner's rights; and by memories_pkey, under row-level security: what it does
-- not return is not there.
select m.uid, m.id, c.score, strength(m.reputation, m.half_life_days, m.reference_time, $4, $24) as strength, c.matched
from lexical_candidates(
    $1, $2::bigint[], $3::smallint[], $5, $4, $19::text[], $20::text[], $21::float8[], $22, $23,
    $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
) c
join memories m on m.uid = c.uid
where m.space_id = $1

-- name: dense_candidates
-- Served by embeddings_by_bucket, with the owner's rights.
select c.uid, c.similarity from dense_candidates($1, $6, $2::bigint[], $7, $3, $4, $5) c

-- name: dense_candidates_selected
-- Served by memories_by_bucket and embeddings_pkey, with the owner's rights.
select c.uid, c.similarity
from dense_candidates_selected(
    $1, $21, $2::bigint[], $3::smallint[], $5, $4, $19, $20,
    $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18
) c

-- name: confirm
-- Served by memories_pkey and embeddings_pkey, under row-level security. Rows with an id are memories that are visible
-- and selected, with their words scored; rows without one have the cosines that are not known yet.
with query as materialized (select any_lexeme($18::text[]) as lexemes)
select m.uid, m.id, coalesce(l.score, 0.0) as score,
    strength(m.reputation, m.half_life_days, m.reference_time, $21, $22) as strength, l.matched
from query q
cross join memories m
left join lateral (
    select
        sum(
            w.weight * cardinality(x.positions) * 1.9
            / (cardinality(x.positions) + 0.9 * (0.6 + 0.4 * m.length / $20::float8))
        ) as score,
        array_agg(w.term) as matched
    from unnest(m.lexemes) x join unnest($18::text[], $19::float8[]) w(term, weight) on w.term = x.lexeme
    where m.lexemes @@ q.lexemes
) l on true
where m.space_id = $1 and m.uid = any ($2::uuid[])
    and ($3::smallint[] is null or m.state = any ($3::smallint[]))
    and ($4::timestamptz is null or m.stale_time > $4) and m.valid_until > $21
    and selects(m, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
union all
select e.memory, null, 1.0 - (e.embedding <=> $23::halfvec), null, null
from embeddings e
where e.memory = any ($24::uuid[]) and e.model = $25

-- name: vector_of
-- Served by embeddings_pkey.
select e.embedding from embeddings e where e.memory = $1 and e.model = $2
