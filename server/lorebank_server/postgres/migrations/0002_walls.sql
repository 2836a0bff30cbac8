-- Row-level security: the second wall. Every statement of a request runs as lorebank_app with the caller's
-- identity in these settings, and sees only what the caller may see, whatever its own filters say.

create function caller_space() returns int language sql stable
    return nullif(current_setting('lorebank.space', true), '')::int;
create function caller_owner() returns text language sql stable
    return coalesce(current_setting('lorebank.owner', true), '');
create function caller_project() returns text language sql stable
    return coalesce(current_setting('lorebank.project', true), '');
create function caller_role() returns int language sql stable
    return coalesce(nullif(current_setting('lorebank.role', true), '')::int, 0);
create function caller_is_operator() returns bool language sql stable
    return coalesce(current_setting('lorebank.operator', true), '') = 'on';

-- An admin's credential that is bound to a project governs nothing, or it could give itself one that is not bound.
create function caller_governs() returns bool language sql stable
    return caller_role() >= 4 and caller_project() = '';

alter table spaces enable row level security;
create policy own_space on spaces for select using (number = (select caller_space()) or (select caller_is_operator()));
create policy administered on spaces for update
    using ((select caller_is_operator()) or (number = (select caller_space()) and (select caller_governs())));
create policy removed on spaces for delete
    using ((select caller_is_operator()) or (number = (select caller_space()) and (select caller_governs())));
create policy created on spaces for insert with check ((select caller_is_operator()));

alter table api_keys enable row level security;
create policy administered on api_keys
    using ((select caller_is_operator()) or (space_id = (select caller_space()) and (select caller_governs())));

-- USER and PROJECT: the owner's alone. TEAM and GLOBAL: everyone's. A credential bound to a project opens what
-- names that project or none.
alter table buckets enable row level security;
create policy visible on buckets for select using (
    space_id = (select caller_space())
    and (scope in (3, 4) or owner = (select caller_owner()))
    and ((select caller_project()) = '' or project in ('', (select caller_project())))
);
create policy opened on buckets for insert with check (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and (case when scope in (3, 4) then owner = '' else owner = (select caller_owner()) end)
    and ((select caller_project()) = '' or project in ('', (select caller_project())))
    and (scope <> 4 or (select caller_role()) >= 4)
);

alter table memories enable row level security;
create policy visible on memories for select using (
    space_id = (select caller_space()) and bucket_id = any (array(select b.id from buckets b))
);
create policy stored on memories for insert with check (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and bucket_id = any (array(select b.id from buckets b where b.scope <> 4 or caller_role() >= 4))
);
create policy revised on memories for update using (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and bucket_id = any (array(select b.id from buckets b where b.scope <> 4 or caller_role() >= 4))
);

-- Whether the caller may add to a memory: it lies where the caller may write, or is not there yet, because a memory
-- and what belongs to it are written in one statement. With the owner's rights, so as to know of hidden ones.
create function may_add_to(p_memory uuid) returns bool language sql stable security definer
    return not exists (
        select from memories m join buckets b on b.id = m.bucket_id
        where m.uid = p_memory and not (
            b.space_id = caller_space()
            and (b.scope in (3, 4) or b.owner = caller_owner())
            and (caller_project() = '' or b.project in ('', caller_project()))
            and (b.scope <> 4 or caller_role() >= 4)
        )
    );

alter table revisions enable row level security;
create policy visible on revisions for select using (
    space_id = (select caller_space()) and exists (select from memories m where m.uid = memory)
);
create policy stored on revisions for insert with check (
    space_id = (select caller_space()) and (select caller_role()) >= 2 and may_add_to(memory)
);

alter table relations enable row level security;
create policy visible on relations for select using (
    space_id = (select caller_space())
    and exists (select from memories m where m.uid = source)
    and exists (select from memories m where m.uid = target)
);
create policy stored on relations for insert with check (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and may_add_to(source)
    and exists (select from memories m where m.uid = target)
);

create policy removed on relations for delete using (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and exists (select from memories m where m.uid = source)
    and exists (select from memories m where m.uid = target)
);

alter table ballots enable row level security;
create policy visible on ballots for select using (
    space_id = (select caller_space()) and exists (select from memories m where m.uid = memory)
);
create policy cast_own on ballots for insert with check (
    space_id = (select caller_space())
    and voter = (select caller_owner())
    and (select caller_role()) >= 2
    and exists (select from memories m where m.uid = memory)
);
create policy change_own on ballots for update
    using (space_id = (select caller_space()) and voter = (select caller_owner()));
create policy withdraw_own on ballots for delete
    using (space_id = (select caller_space()) and voter = (select caller_owner()));

alter table usages enable row level security;
create policy visible on usages for select using (
    space_id = (select caller_space()) and exists (select from memories m where m.uid = memory)
);

alter table answers enable row level security;
create policy own on answers using (space_id = (select caller_space()) and owner = (select caller_owner()));

alter table embeddings enable row level security;
create policy visible on embeddings for select using (
    space_id = (select caller_space()) and bucket_id = any (array(select b.id from buckets b))
);
create policy stored on embeddings for insert with check (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and bucket_id = any (array(select b.id from buckets b where b.scope <> 4 or caller_role() >= 4))
    and may_add_to(memory)
);
create policy outdated on embeddings for delete using (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and bucket_id = any (array(select b.id from buckets b where b.scope <> 4 or caller_role() >= 4))
);
create policy revised on embeddings for update using (
    space_id = (select caller_space())
    and (select caller_role()) >= 2
    and bucket_id = any (array(select b.id from buckets b where b.scope <> 4 or caller_role() >= 4))
);

do $$
begin
    execute format('grant usage on schema %I to lorebank_app', current_schema());
end $$;
grant select, insert, update, delete on spaces to lorebank_app;
grant select, insert, update on api_keys to lorebank_app;
grant select, insert on buckets, revisions to lorebank_app;
grant select, insert, delete on relations to lorebank_app;
grant select, insert, update on memories, answers to lorebank_app;
grant select, insert, update, delete on embeddings, ballots to lorebank_app;
grant select on usages to lorebank_app;
