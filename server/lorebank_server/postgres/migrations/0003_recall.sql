-- Functions that run with the owner's rights. Row-level security would make the planner ignore the text index, so
-- the candidate legs take space and buckets as arguments and give back ids and scores, never rows: what leaves the
-- database is read again under row-level security. Each sets its search path, and none is open to the public.

-- The buckets that a caller may read and a selector selects: the first wall.
create function visible_buckets(
    p_space int, p_owner text, p_bound_project text, p_scopes smallint[], p_project text
) returns bigint[] language sql stable
begin atomic
    select coalesce(array_agg(b.id order by b.id), '{}')
    from buckets b
    where b.space_id = p_space
        and (b.scope in (3, 4) or b.owner = p_owner)
        and (p_bound_project = '' or b.project in ('', p_bound_project))
        and (p_scopes is null or b.scope = any (p_scopes))
        and (p_project = '' or b.project = p_project);
end;

-- The selector, in the one place where it is applied. Null arguments do not narrow.
create function selects(
    m memories, p_kinds smallint[], p_categories text[], p_collections text[], p_tags_all text[],
    p_tags_any text[], p_subjects text[], p_agents text[], p_runs text[], p_owners text[], p_ids text[],
    p_created_after timestamptz, p_created_before timestamptz, p_polarity smallint
) returns bool language sql immutable
    return (p_kinds is null or m.kind = any (p_kinds))
        and (p_categories is null or m.category = any (p_categories))
        and (p_collections is null or m.collection = any (p_collections))
        and (p_tags_all is null or m.tags @> p_tags_all)
        and (p_tags_any is null or m.tags && p_tags_any)
        and (p_subjects is null or m.subject = any (p_subjects) or lower(m.subject) = any (p_subjects))
        and (p_agents is null or m.agent = any (p_agents))
        and (p_runs is null or m.run = any (p_runs))
        and (p_owners is null or m.owner = any (p_owners))
        and (p_ids is null or m.id = any (p_ids))
        and (p_created_after is null or m.create_time >= p_created_after)
        and (p_created_before is null or m.create_time < p_created_before)
        and (p_polarity is null or m.polarity = p_polarity);

-- The same formula as the domain's, for ordering by strength. Beyond a thousand half-lives nothing is left, where
-- power() would fail instead of giving zero.
create function strength(
    p_reputation float8, p_half_life_days float8, p_reference_time timestamptz, p_now timestamptz, p_policy text
) returns float8 language sql immutable
    return case
        when p_policy = 'none' or p_half_life_days is null then p_reputation
        else p_reputation * (0.25 + 0.75 * power(
            0.5::float8,
            least(
                1000.0,
                greatest(0.0, extract(epoch from p_now - p_reference_time)::float8 / 86400.0) / p_half_life_days
            )
        ))
    end;

-- The caller's own space, once the caller is set: a function, so that the settings are made before it is read.
create function own_space(p_number int) returns setof spaces language sql volatile
begin atomic
    select s.* from spaces s where s.number = p_number;
end;

-- A tsquery of lexemes joined by OR.
create function any_lexeme(p_terms text[]) returns tsquery language sql immutable
    return (
        select string_agg('''' || replace(replace(t, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery
        from unnest(p_terms) t
    );

-- Documents, total length and each term's document frequency over buckets. Buckets with a snapshot answer from
-- it, the others are counted as they stand.
create function term_statistics(p_space int, p_buckets bigint[], p_terms text[])
returns table (documents bigint, total_length bigint, frequencies bigint[])
language sql stable security definer
begin atomic
    with terms as materialized (
        select u.term, u.position, any_lexeme(array[u.term]) as query
        from unnest(p_terms) with ordinality u(term, position)
    ), snapshots as materialized (
        select s.bucket_id, s.documents, s.total_length from bucket_statistics s where s.bucket_id = any (p_buckets)
    ), live as materialized (
        select coalesce(array_agg(b), '{}') as buckets
        from unnest(p_buckets) b
        where b not in (select s.bucket_id from snapshots s)
    ), live_totals as (
        select count(*) as documents, coalesce(sum(m.length), 0) as total_length
        from memories m
        where m.space_id = p_space and m.bucket_id = any ((select buckets from live)::bigint[]) and m.state = 2
    )
    select
        l.documents + coalesce((select sum(s.documents) from snapshots s), 0)::bigint,
        l.total_length + coalesce((select sum(s.total_length) from snapshots s), 0)::bigint,
        array(
            select
                coalesce((
                    select sum(t.documents) from bucket_terms t
                    where t.bucket_id = any (array(select s.bucket_id from snapshots s)) and t.term = u.term
                ), 0)::bigint
                + case when cardinality((select buckets from live)) = 0 then 0 else (
                    select count(*) from memories m
                    where m.lexemes @@ u.query and m.space_id = p_space
                        and m.bucket_id = any ((select buckets from live)::bigint[]) and m.state = 2
                ) end
            from terms u
            order by u.position
        )
    from live_totals l;
end;

-- The lexical leg: at most 1,000 matches of the rarest terms, the 120 best of them by ts_rank, scored by BM25.
create function lexical_candidates(
    p_space int, p_buckets bigint[], p_states smallint[], p_fresh_at timestamptz, p_now timestamptz,
    p_rarest text[], p_terms text[], p_weights float8[], p_average_length float8, p_limit int,
    p_kinds smallint[], p_categories text[], p_collections text[], p_tags_all text[], p_tags_any text[],
    p_subjects text[], p_agents text[], p_runs text[], p_owners text[], p_ids text[],
    p_created_after timestamptz, p_created_before timestamptz, p_polarity smallint
) returns table (uid uuid, score float8, matched text[]) language plpgsql stable security definer
set plan_cache_mode = force_custom_plan
as $$
begin
    return query
    with found as materialized (
        select m.uid as memory, m.lexemes, m.length
        from memories m
        where m.lexemes @@ any_lexeme(p_rarest)
            and m.space_id = p_space and m.bucket_id = any (p_buckets) and m.state = any (p_states)
            and (p_fresh_at is null or m.stale_time > p_fresh_at) and m.valid_until > p_now
            and selects(
                m, p_kinds, p_categories, p_collections, p_tags_all, p_tags_any, p_subjects, p_agents, p_runs,
                p_owners, p_ids, p_created_after, p_created_before, p_polarity
            )
        limit 1000
    ), shortlist as materialized (
        select f.memory, f.lexemes, f.length
        from found f
        order by ts_rank(f.lexemes, any_lexeme(p_terms)) desc, f.memory
        limit 120
    )
    select s.memory, b.score, b.matched
    from shortlist s cross join lateral (
        select
            sum(
                w.weight * cardinality(x.positions) * 1.9
                / (cardinality(x.positions) + 0.9 * (0.6 + 0.4 * s.length / p_average_length))
            ) as score,
            array_agg(w.term) as matched
        from unnest(s.lexemes) x join unnest(p_terms, p_weights) w(term, weight) on w.term = x.lexeme
    ) b
    order by b.score desc, s.memory
    limit p_limit;
end $$;

-- Until when the dense leg finds a memory when nothing special is selected.
create function found_until(p_state smallint, p_stale_time timestamptz, p_valid_until timestamptz)
returns timestamptz language sql immutable
    return case when p_state = 2 then least(p_stale_time, p_valid_until) else '-infinity' end;

-- The dense leg when nothing special is selected: exact distances over the narrow table alone.
create function dense_candidates(p_space int, p_buckets bigint[], p_now timestamptz, p_vector halfvec, p_limit int)
returns table (uid uuid, similarity float8) language sql stable security definer
begin atomic
    -- The nearest first, then their similarity: in one list, both would be computed for every row.
    select n.memory, 1.0 - n.distance
    from (
        select e.memory, e.embedding <=> p_vector as distance
        from embeddings e
        where e.space_id = p_space and e.bucket_id = any (p_buckets) and e.found_until > p_now
        order by distance, e.memory
        limit p_limit
    ) n
    order by n.distance, n.memory;
end;

-- The dense leg within a selection: what is selected first, then exact distances.
create function dense_candidates_selected(
    p_space int, p_buckets bigint[], p_states smallint[], p_fresh_at timestamptz, p_now timestamptz,
    p_vector halfvec, p_limit int,
    p_kinds smallint[], p_categories text[], p_collections text[], p_tags_all text[], p_tags_any text[],
    p_subjects text[], p_agents text[], p_runs text[], p_owners text[], p_ids text[],
    p_created_after timestamptz, p_created_before timestamptz, p_polarity smallint
) returns table (uid uuid, similarity float8) language plpgsql stable security definer
set plan_cache_mode = force_custom_plan
as $$
begin
    return query
    with selected as materialized (
        select m.uid as memory
        from memories m
        where m.space_id = p_space and m.bucket_id = any (p_buckets) and m.state = any (p_states)
            and (p_fresh_at is null or m.stale_time > p_fresh_at) and m.valid_until > p_now
            and selects(
                m, p_kinds, p_categories, p_collections, p_tags_all, p_tags_any, p_subjects, p_agents, p_runs,
                p_owners, p_ids, p_created_after, p_created_before, p_polarity
            )
    )
    select n.memory, 1.0 - n.distance
    from (
        select e.memory, e.embedding <=> p_vector as distance
        from selected s join embeddings e on e.memory = s.memory
        order by distance, e.memory
        limit p_limit
    ) n
    order by n.distance, n.memory;
end $$;

-- A key by its id, before the caller is known.
create function find_api_key(p_id text)
returns table (
    secret_hash bytea, space_id int, space text, owner text, roles smallint[], project text,
    expire_time timestamptz, revoke_time timestamptz
) language sql stable security definer
begin atomic
    select k.secret_hash, k.space_id, s.id, k.owner, k.roles, k.project, k.expire_time, k.revoke_time
    from api_keys k join spaces s on s.number = k.space_id
    where k.id = p_id;
end;

create function touch_api_keys(p_ids text[], p_time timestamptz) returns void language sql security definer
begin atomic
    update api_keys set last_used_time = p_time where id = any (p_ids);
end;

-- The number of a space while no key was ever created; nothing afterwards.
create function open_space(p_space text) returns int language sql stable security definer
begin atomic
    select s.number from spaces s where s.id = p_space and not exists (select from keys_ever_created);
end;

create function keys_now_exist() returns void language sql security definer
begin atomic
    insert into keys_ever_created default values on conflict do nothing;
end;

-- What would go with a space: counted and digested, not read. Only for those who may delete it.
create function space_contents(p_space int) returns table (memories int, digest text)
language sql stable security definer
begin atomic
    select count(m.uid)::int, encode(sha256(convert_to(
        p_space || ':' || coalesce(string_agg(m.uid || '-' || m.revision, ',' order by m.uid), ''), 'UTF8'
    )), 'hex')
    from memories m
    where m.space_id = p_space
        and (caller_is_operator() or (caller_space() = p_space and caller_governs()));
end;

-- A memory's counts and what follows from them; anyone who sees a memory may move them by voting.
create function record_standing(
    p_space int, p_memory uuid, p_upvotes int, p_downvotes int, p_citations int, p_successes int, p_failures int,
    p_reputation float8, p_reference_time timestamptz, p_stale_time timestamptz
) returns void language sql security definer
begin atomic
    update memories
    set upvotes = p_upvotes, downvotes = p_downvotes, citations = p_citations, successes = p_successes,
        failures = p_failures, reputation = p_reputation, reference_time = p_reference_time,
        stale_time = p_stale_time
    where uid = p_memory and space_id = p_space and p_space = caller_space() and caller_role() >= 2
        and bucket_id = any (visible_buckets(p_space, caller_owner(), caller_project(), null, ''));
    update embeddings e
    set found_until = found_until(m.state, m.stale_time, m.valid_until)
    from memories m
    where e.memory = p_memory and e.space_id = p_space and m.uid = p_memory and p_space = caller_space();
end;

-- Uses of memories that callers were shown, written in one order; those erased meanwhile are left out.
create function record_usage(p_memories uuid[], p_spaces int[], p_counts int[], p_times timestamptz[])
returns void language sql security definer
begin atomic
    insert into usages as u (memory, space_id, use_count, last_used_time)
    select g.memory, g.space_id, g.count, g.time
    from unnest(p_memories, p_spaces, p_counts, p_times) g(memory, space_id, count, time)
    where exists (select from memories m where m.uid = g.memory and m.space_id = g.space_id)
    order by g.memory
    on conflict (memory) do update
    set use_count = u.use_count + excluded.use_count,
        last_used_time = greatest(u.last_used_time, excluded.last_used_time);
end;

do $$
declare
    name text;
begin
    foreach name in array array[
        'visible_buckets', 'term_statistics', 'lexical_candidates', 'dense_candidates',
        'dense_candidates_selected', 'find_api_key', 'touch_api_keys', 'open_space', 'keys_now_exist',
        'record_standing', 'record_usage', 'space_contents', 'may_add_to'
    ] loop
        execute format('alter function %I set search_path = %I, pg_temp', name, current_schema());
        execute format('revoke all on function %I from public', name);
        execute format('grant execute on function %I to lorebank_app', name);
    end loop;
end $$;
