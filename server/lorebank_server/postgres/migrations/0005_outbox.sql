-- What a vector store outside of Postgres has not taken in yet. Off until a server is set to such a store.
-- Points there are copies of memories and their vectors. Whoever changes a vector, or what is filtered by, leaves a row
-- here in the same transaction; whoever takes rows away has written the memory's present state to the store before.

create table outbox (
    sequence bigint generated always as identity primary key,
    memory uuid not null, -- refers to nothing: the row outlives the memory, whose point is to be deleted then
    space_id int not null,
    bucket_id bigint not null,
    enqueue_time timestamptz not null default clock_timestamp(),
    attempts int not null default 0,
    not_before timestamptz not null default '-infinity',
    -- Until when a write of this memory that was announced, and whose outcome nobody knows, may still take effect.
    uncertain_until timestamptz,
    uncertain_before timestamptz, -- the same as it was before the latest announcement; null once that had passed
    apply_time timestamptz -- set once applied, while the row waits to be applied again for certainty
);
create index outbox_by_memory on outbox (memory);
create index outbox_by_bucket on outbox (space_id, bucket_id) include (memory, sequence);
-- Rows come and go all the time; an announcement writes them where they are.
alter table outbox set (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 2000
);
alter table outbox enable row level security; -- for the owner alone; callers have functions

-- The generations that the store keeps, or is about to.
create table outbox_generations (
    model smallint primary key references embedding_models on delete cascade,
    filled bool not null default false, -- whether every vector was enqueued since the store had room for them
    swept bool not null default false -- whether the store was searched since for what Postgres does not have
);
alter table outbox_generations enable row level security;

-- One for each event, because a trigger for several has no transition tables.
create function enqueue_changed() returns trigger language plpgsql security definer as $$
begin
    insert into outbox (memory, space_id, bucket_id) select distinct c.memory, c.space_id, c.bucket_id from changed c;
    return null;
end $$;
create trigger enqueue_inserted after insert on embeddings
    referencing new table as changed for each statement execute function enqueue_changed();
create trigger enqueue_updated after update on embeddings
    referencing new table as changed for each statement execute function enqueue_changed();
create trigger enqueue_deleted after delete on embeddings
    referencing old table as changed for each statement execute function enqueue_changed();
alter table embeddings disable trigger enqueue_inserted;
alter table embeddings disable trigger enqueue_updated;
alter table embeddings disable trigger enqueue_deleted;

create function outbox_is_on() returns bool language sql stable
    return not exists (
        select from pg_trigger t
        where t.tgrelid = 'embeddings'::regclass and t.tgname like 'enqueue\_%' and t.tgenabled = 'D'
    );

-- Rows that nobody has claimed yet do as well as new ones; those claimed before may be about to go.
create function enqueue_generation(p_model smallint) returns void language sql
begin atomic
    insert into outbox (memory, space_id, bucket_id)
    select e.memory, e.space_id, e.bucket_id
    from embeddings e
    where e.model = p_model and not exists (select from outbox o where o.memory = e.memory and o.attempts = 0)
    order by e.memory;
end;

-- From the end of this transaction on every change is enqueued, and everything is that was not before. Idempotent.
-- While the triggers are switched nobody writes, so that nothing falls in between.
create function enable_outbox() returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('outbox switch', 0));
    if not outbox_is_on() then
        alter table embeddings enable trigger enqueue_inserted;
        alter table embeddings enable trigger enqueue_updated;
        alter table embeddings enable trigger enqueue_deleted;
        delete from outbox;
        update outbox_generations set filled = false, swept = false;
    end if;
    insert into outbox_generations (model)
    select m.number from embedding_models m
    where exists (select from embeddings e where e.model = m.number)
        or exists (select from spaces s where s.embedding_model = m.number)
    on conflict do nothing;
    perform enqueue_generation(g.model) from outbox_generations g where not g.filled;
    update outbox_generations set filled = true, swept = false where not filled;
end $$;

-- Nothing is enqueued any more and nothing waits, unless a server that needs it holds the lock; returns whether so.
create function disable_outbox() returns bool language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('outbox switch', 0));
    if not exists (
        select from pg_trigger t
        where t.tgrelid = 'embeddings'::regclass and t.tgname like 'enqueue\_%' and t.tgenabled <> 'D'
    ) then
        return true;
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('outbox in use', 0)) then
        return false;
    end if;
    alter table embeddings disable trigger enqueue_inserted;
    alter table embeddings disable trigger enqueue_updated;
    alter table embeddings disable trigger enqueue_deleted;
    delete from outbox;
    delete from outbox_generations;
    return true;
end $$;

-- The overlay of a search: every memory of these buckets that waits, the latest first and at most p_limit, each with
-- its exact similarity if it is selected and has a vector, else with null.
create function pending_candidates(
    p_space int, p_model smallint, p_buckets bigint[], p_states smallint[], p_fresh_at timestamptz,
    p_now timestamptz, p_vector halfvec, p_limit int,
    p_kinds smallint[], p_categories text[], p_collections text[], p_tags_all text[], p_tags_any text[],
    p_subjects text[], p_agents text[], p_runs text[], p_owners text[], p_ids text[],
    p_created_after timestamptz, p_created_before timestamptz, p_polarity smallint
) returns table (uid uuid, similarity float8) language plpgsql stable security definer
set plan_cache_mode = force_custom_plan
as $$
declare
    waiting uuid[];
begin
    select array_agg(distinct w.memory) into waiting
    from (
        select o.memory
        from outbox o
        where o.space_id = p_space and o.bucket_id = any (p_buckets)
        group by o.memory
        order by max(o.sequence) desc
        limit p_limit
    ) w;
    if waiting is null then
        return;
    end if;
    return query
    select w.memory, case when m.uid is not null then 1.0 - (e.embedding <=> p_vector) end
    from unnest(waiting) w(memory)
    left join memories m on m.uid = w.memory
        and m.space_id = p_space and m.bucket_id = any (p_buckets) and m.state = any (p_states)
        and (p_fresh_at is null or m.stale_time > p_fresh_at) and m.valid_until > p_now
        and selects(
            m, p_kinds, p_categories, p_collections, p_tags_all, p_tags_any, p_subjects, p_agents, p_runs,
            p_owners, p_ids, p_created_after, p_created_before, p_polarity
        )
    left join embeddings e on e.memory = w.memory and e.model = p_model;
end $$;

-- Exact similarities of memories in these buckets that have a vector, for an index that knows approximations only.
create function exact_similarities(
    p_space int, p_model smallint, p_buckets bigint[], p_vector halfvec, p_memories uuid[]
) returns table (uid uuid, similarity float8) language sql stable security definer
begin atomic
    select e.memory, 1.0 - (e.embedding <=> p_vector)
    from embeddings e
    where e.memory = any (p_memories) and e.model = p_model and e.space_id = p_space
        and e.bucket_id = any (p_buckets);
end;

do $$
declare
    name text;
begin
    foreach name in array array['pending_candidates', 'exact_similarities'] loop
        execute format('alter function %I set search_path = %I, pg_temp', name, current_schema());
        execute format('revoke all on function %I from public', name);
        execute format('grant execute on function %I to lorebank_app', name);
    end loop;
    foreach name in array array[
        'enqueue_changed', 'outbox_is_on', 'enqueue_generation', 'enable_outbox', 'disable_outbox'
    ] loop
        execute format('alter function %I set search_path = %I, pg_temp', name, current_schema());
        execute format('revoke all on function %I from public', name);
    end loop;
end $$;
