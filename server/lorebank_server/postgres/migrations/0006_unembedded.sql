-- Memories without a vector of their space's generation: stored or changed while the embedding model was away. A table
-- of its own, because it is empty nearly always: looking into it costs nothing, however many memories there are.

create table unembedded (
    memory uuid primary key references memories on delete cascade,
    space_id int not null references spaces on delete cascade,
    attempts int not null default 0, -- how often the model refused this text
    not_before timestamptz not null default '-infinity'
);
create index unembedded_due on unembedded (not_before, memory);
create index unembedded_by_space on unembedded (space_id);
-- After an outage it empties, and is read every second.
alter table unembedded set (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
alter table unembedded enable row level security; -- for the owner alone; callers have the function

insert into unembedded (memory, space_id)
select m.uid, m.space_id
from memories m join spaces s on s.number = m.space_id
where not exists (select from embeddings e where e.memory = m.uid and e.model = s.embedding_model);

-- Called in the transaction that left these memories without a vector.
create function await_embedding(p_memories uuid[]) returns void language sql security definer
begin atomic
    insert into unembedded (memory, space_id)
    select m.uid, m.space_id
    from memories m
    where m.uid = any (p_memories) and m.space_id = caller_space() and may_add_to(m.uid)
    on conflict (memory) do update set attempts = 0, not_before = '-infinity';
end;

do $$
begin
    execute format('alter function await_embedding set search_path = %I, pg_temp', current_schema());
end $$;
revoke all on function await_embedding from public;
grant execute on function await_embedding to lorebank_app;
