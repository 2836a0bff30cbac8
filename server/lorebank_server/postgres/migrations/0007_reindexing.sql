-- Moving a space to another generation while it is searched and written to.

alter table spaces add column embedding_generation int not null default 1; -- counts the rebuilds of its vectors

-- Makes sure that vectors of this generation are what the space is searched by, and that this stays so until the end of
-- the transaction; whoever moves the space on waits for it, in line with everybody else. Else the transaction has to be
-- repeated, with vectors of the other model.
create function keep_generation(p_space int, p_model smallint) returns bool language plpgsql security definer as $$
begin
    perform pg_advisory_xact_lock_shared(hashtextextended('generation:' || p_space, 0));
    -- A statement of its own, which sees what was committed while this waited.
    if not exists (select from spaces s where s.number = p_space and s.embedding_model = p_model) then
        raise serialization_failure using message = 'the space is searched by vectors of another generation';
    end if;
    return true;
end $$;

-- Nobody writes vectors of the space's generation from now to the end of the transaction.
create function claim_generation(p_space int) returns void language sql
    return pg_advisory_xact_lock(hashtextextended('generation:' || p_space, 0));

do $$
declare
    name text;
begin
    foreach name in array array['keep_generation', 'claim_generation'] loop
        execute format('alter function %I set search_path = %I, pg_temp', name, current_schema());
        execute format('revoke all on function %I from public', name);
    end loop;
end $$;
grant execute on function keep_generation to lorebank_app;
grant select on embedding_models to lorebank_app;
