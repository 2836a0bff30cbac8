-- Document frequencies in large databases: snapshots from 100 memories a bucket on, used where a caller sees more than
-- 2,000; what is counted live is read by bucket, so that nobody pays for how often others use a word.

create or replace function term_statistics(p_space int, p_buckets bigint[], p_terms text[])
returns table (documents bigint, total_length bigint, frequencies bigint[])
language sql stable security definer
begin atomic
    with kept as materialized (
        select s.bucket_id, s.documents, s.total_length from bucket_statistics s where s.bucket_id = any (p_buckets)
    ), snapshots as materialized (
        select k.bucket_id, k.documents, k.total_length from kept k where (select sum(a.documents) from kept a) > 2000
    ), live as materialized (
        select m.lexemes, m.length
        from memories m
        where m.space_id = p_space and m.state = 2 and m.bucket_id = any (array(
            select b from unnest(p_buckets) b where b not in (select s.bucket_id from snapshots s)
        ))
    )
    select
        (select count(*) from live) + coalesce((select sum(s.documents) from snapshots s), 0)::bigint,
        (select coalesce(sum(l.length), 0) from live l)
            + coalesce((select sum(s.total_length) from snapshots s), 0)::bigint,
        array(
            select
                coalesce((
                    select sum(t.documents) from bucket_terms t
                    where t.bucket_id = any (array(select s.bucket_id from snapshots s)) and t.term = u.term
                ), 0)::bigint
                + (select count(*) from live l where l.lexemes @@ any_lexeme(array[u.term]))
            from unnest(p_terms) with ordinality u(term, position)
            order by u.position
        );
end;

do $$
begin
    execute format('alter function term_statistics set search_path = %I, pg_temp', current_schema());
end $$;
