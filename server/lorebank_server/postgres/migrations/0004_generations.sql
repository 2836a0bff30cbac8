-- Vectors by generation, and approximate search for large spaces.
-- A generation is an embedding model. Every space has one that it is searched by; while it moves to another, its
-- memories have a vector of each.

alter table spaces add column embedding_model smallint references embedding_models; -- null until a server adopts it
update spaces s set embedding_model = (select e.model from embeddings e where e.space_id = s.number limit 1);

-- With its body as text, it follows the columns of the table.
create or replace function own_space(p_number int) returns setof spaces language sql volatile
as $$ select s.* from spaces s where s.number = p_number $$;

create sequence embedding_versions;
grant usage on sequence embedding_versions to lorebank_app;

drop index embeddings_by_bucket;
drop index embeddings_by_model;
alter table embeddings drop constraint embeddings_pkey, add primary key (memory, model);
alter table embeddings
    -- Grows with every change of the vector or of what is filtered by, so that a late copy is told from a fresh one.
    add column version bigint not null default nextval('embedding_versions'),
    -- Whether an index of the space holds it, or would if there was one. What is stored later than the index waits
    -- outside, where writing is cheap and reading exact, until the background takes it in.
    add column indexed bool not null default true;
-- Room for the next version of a row on its own page: a change of what is filtered by then touches no index.
alter table embeddings set (fillfactor = 90);
create index embeddings_by_bucket on embeddings (space_id, model, bucket_id);
create index embeddings_waiting on embeddings (space_id, model, bucket_id) where not indexed;

create function renew_version() returns trigger language plpgsql as $$
begin
    new.version := nextval('embedding_versions');
    return new;
end $$;
create trigger renewed before update on embeddings for each row execute function renew_version();

-- The approximate indexes there are: one for each large space and generation, under the name that
-- vector_index_name gives.
create table vector_indexes (
    space_id int not null references spaces on delete cascade,
    model smallint not null references embedding_models,
    documents bigint not null, -- vectors when it was built, and those taken in since
    ready bool not null,
    build_time timestamptz not null,
    primary key (space_id, model)
);
alter table vector_indexes enable row level security; -- for the background alone

create function vector_index_name(p_space int, p_model smallint) returns text language sql immutable
    return 'embeddings_near_' || p_space || '_' || p_model;

-- Whether a new vector waits outside of its space's index.
create function waits_for_index(p_space int, p_model smallint) returns bool language sql stable security definer
    return exists (select from vector_indexes v where v.space_id = p_space and v.model = p_model);

-- The parameters of the approximate search are known once the extension's library is loaded.
do $$
begin
    perform '[1]'::halfvec <=> '[1]'::halfvec;
end $$;

drop function dense_candidates(int, bigint[], timestamptz, halfvec, int);
drop function dense_candidates_selected(
    int, bigint[], smallint[], timestamptz, timestamptz, halfvec, int, smallint[], text[], text[], text[], text[],
    text[], text[], text[], text[], text[], timestamptz, timestamptz, smallint
);

-- Up to how many vectors an exact scan is quicker than an index, which has to pass over what is not selected.
create function exact_up_to(p_space int, p_model smallint) returns bigint language sql stable security definer
    return (
        select 3000 + v.documents / 50
        from vector_indexes v
        where v.space_id = p_space and v.model = p_model and v.ready
    );

-- The dense leg when nothing special is selected. Exact over the narrow table alone, unless many memories are
-- visible in a space that has an index; then what the index knows, and exactly what waits outside of it.
create function dense_candidates(
    p_space int, p_model smallint, p_buckets bigint[], p_visible bigint, p_now timestamptz, p_vector halfvec,
    p_limit int
) returns table (uid uuid, similarity float8) language plpgsql stable security definer
set hnsw.iterative_scan = strict_order
set hnsw.ef_search = 128
set enable_sort = off -- or the planner, who cannot know, sorts whole buckets
as $$
begin
    if p_visible <= exact_up_to(p_space, p_model) is not false then
        -- The nearest first, then their similarity: in one list, both would be computed for every row.
        return query
        select n.memory, 1.0 - n.distance
        from (
            select e.memory, e.embedding <=> p_vector as distance
            from embeddings e
            where e.space_id = p_space and e.model = p_model and e.bucket_id = any (p_buckets)
                and e.found_until > p_now
            order by distance, e.memory
            limit p_limit
        ) n
        order by n.distance, n.memory;
        return;
    end if;
    return query execute format(
        $query$
        select n.memory, 1.0 - n.distance
        from (
            (
                select e.memory, e.embedding::halfvec(%1$s) <=> $1::halfvec(%1$s) as distance
                from embeddings e
                where e.space_id = %2$s and e.model = %3$s and e.indexed
                    and e.bucket_id = any ($2) and e.found_until > $3
                order by e.embedding::halfvec(%1$s) <=> $1::halfvec(%1$s)
                limit $4
            )
            union all
            (
                select e.memory, e.embedding <=> $1 as distance
                from embeddings e
                where e.space_id = %2$s and e.model = %3$s and not e.indexed
                    and e.bucket_id = any ($2) and e.found_until > $3
                order by distance, e.memory
                limit $4
            )
        ) n
        order by n.distance, n.memory
        limit $4
        $query$,
        vector_dims(p_vector), p_space, p_model
    ) using p_vector, p_buckets, p_now, p_limit;
end $$;

-- The dense leg within a selection: exact over what is selected, unless that is much and the space has an index.
create function dense_candidates_selected(
    p_space int, p_model smallint, p_buckets bigint[], p_states smallint[], p_fresh_at timestamptz,
    p_now timestamptz, p_vector halfvec, p_limit int,
    p_kinds smallint[], p_categories text[], p_collections text[], p_tags_all text[], p_tags_any text[],
    p_subjects text[], p_agents text[], p_runs text[], p_owners text[], p_ids text[],
    p_created_after timestamptz, p_created_before timestamptz, p_polarity smallint
) returns table (uid uuid, similarity float8) language plpgsql stable security definer
set plan_cache_mode = force_custom_plan
set hnsw.iterative_scan = strict_order
set hnsw.ef_search = 128
set enable_sort = off
as $$
declare
    most bigint := exact_up_to(p_space, p_model);
    chosen uuid[];
begin
    select array_agg(s.memory) into chosen
    from (
        select m.uid as memory
        from memories m
        where m.space_id = p_space and m.bucket_id = any (p_buckets) and m.state = any (p_states)
            and (p_fresh_at is null or m.stale_time > p_fresh_at) and m.valid_until > p_now
            and selects(
                m, p_kinds, p_categories, p_collections, p_tags_all, p_tags_any, p_subjects, p_agents, p_runs,
                p_owners, p_ids, p_created_after, p_created_before, p_polarity
            )
        limit most + 1
    ) s;
    if cardinality(chosen) > most is not true then
        return query
        select n.memory, 1.0 - n.distance
        from (
            select e.memory, e.embedding <=> p_vector as distance
            from unnest(chosen) c(memory) join embeddings e on e.memory = c.memory and e.model = p_model
            order by distance, e.memory
            limit p_limit
        ) n
        order by n.distance, n.memory;
        return;
    end if;
    return query execute format(
        $query$
        select n.memory, 1.0 - n.distance
        from (
            (
                select e.memory, e.embedding::halfvec(%1$s) <=> $1::halfvec(%1$s) as distance
                from embeddings e join memories m on m.uid = e.memory
                where e.space_id = %2$s and e.model = %3$s and e.indexed and e.bucket_id = any ($2)
                    and m.state = any ($5) and ($6 is null or m.stale_time > $6) and m.valid_until > $3
                    and selects(m, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
                order by e.embedding::halfvec(%1$s) <=> $1::halfvec(%1$s)
                limit $4
            )
            union all
            (
                select e.memory, e.embedding <=> $1 as distance
                from embeddings e join memories m on m.uid = e.memory
                where e.space_id = %2$s and e.model = %3$s and not e.indexed and e.bucket_id = any ($2)
                    and m.state = any ($5) and ($6 is null or m.stale_time > $6) and m.valid_until > $3
                    and selects(m, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
                order by distance, e.memory
                limit $4
            )
        ) n
        order by n.distance, n.memory
        limit $4
        $query$,
        vector_dims(p_vector), p_space, p_model
    ) using p_vector, p_buckets, p_now, p_limit, p_states, p_fresh_at, p_kinds, p_categories, p_collections,
        p_tags_all, p_tags_any, p_subjects, p_agents, p_runs, p_owners, p_ids, p_created_after, p_created_before,
        p_polarity;
end $$;

do $$
declare
    name text;
begin
    foreach name in array array[
        'dense_candidates', 'dense_candidates_selected', 'exact_up_to', 'waits_for_index'
    ] loop
        execute format('alter function %I set search_path = %I, pg_temp', name, current_schema());
        execute format('revoke all on function %I from public', name);
        execute format('grant execute on function %I to lorebank_app', name);
    end loop;
end $$;
revoke execute on function exact_up_to from lorebank_app;
