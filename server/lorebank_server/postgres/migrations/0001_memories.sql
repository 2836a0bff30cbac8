-- Spaces, identity, memories with their history and relations, and the two search legs.
-- The role lorebank_app serves requests under row-level security; everything here belongs to the migrating role.

-- One role serves all databases of a cluster: another of them may have made it, or an operator for a role that may not.
do $$
begin
    if not exists (select from pg_roles where rolname = 'lorebank_app') then
        create role lorebank_app nologin;
    end if;
exception
    when duplicate_object or unique_violation then null;
end $$;

do $$
begin
    execute format('grant lorebank_app to %I', current_user);
exception
    when insufficient_privilege then
        if not pg_has_role('lorebank_app', 'member') then
            raise;
        end if;
end $$;

-- ── Spaces ──────────────────────────────────────────────────────────────────────────────────────────────────
create table spaces (
    number int generated always as identity primary key,
    id text not null unique,
    display_name text not null default '',
    revision int not null default 1,
    half_life_days float8,
    default_confidence float8 not null,
    stale_threshold float8 not null,
    quality_policy text not null,
    language text not null,
    create_time timestamptz not null
);

create table api_keys (
    id text primary key,
    space_id int not null references spaces on delete cascade,
    secret_hash bytea not null,
    display_name text not null default '',
    owner text not null,
    roles smallint[] not null,
    project text not null default '',
    create_time timestamptz not null,
    expire_time timestamptz,
    last_used_time timestamptz,
    revoke_time timestamptz
);
create index api_keys_by_space on api_keys (space_id, id);

-- One row once any key was ever created, whatever became of it: the open local mode ends for good.
create table keys_ever_created (only_row bool primary key default true check (only_row));

create table embedding_models (
    number smallint generated always as identity primary key,
    model text not null,
    dimensions int not null,
    unique (model, dimensions)
);

-- ── Memories ────────────────────────────────────────────────────────────────────────────────────────────────
-- A bucket is a set of memories that the same callers may read; visibility is decided on buckets alone.
create table buckets (
    id bigint generated always as identity primary key,
    space_id int not null references spaces on delete cascade,
    scope smallint not null,
    owner text not null, -- empty unless the scope is private
    project text not null,
    unique (space_id, scope, owner, project)
);

create table memories (
    uid uuid primary key,
    space_id int not null references spaces on delete cascade,
    bucket_id bigint not null references buckets on delete cascade,
    id text not null,
    key text, -- null when none was given
    key_namespace text not null,
    owner text not null,
    state smallint not null,
    revision int not null,
    body jsonb not null, -- what the author said; empty fields left out
    kind smallint not null,
    polarity smallint not null,
    category text not null,
    collection text not null,
    subject text not null,
    tags text[] not null,
    agent text not null,
    run text not null,
    conversation text not null,
    content_hash bytea not null,
    lexemes tsvector not null,
    length int not null, -- occurrences of lexemes, for BM25
    reputation float8 not null,
    half_life_days float8, -- null when it does not decay
    reference_time timestamptz not null,
    stale_time timestamptz not null, -- infinity when never
    valid_until timestamptz not null, -- infinity when open
    upvotes int not null default 0,
    downvotes int not null default 0,
    citations int not null default 0,
    successes int not null default 0,
    failures int not null default 0,
    create_time timestamptz not null,
    update_time timestamptz not null,
    validate_time timestamptz,
    delete_time timestamptz,
    superseded_by uuid,
    constraint memories_id unique (space_id, id)
);
-- A natural key names one living memory; superseded, deleted and rejected ones let go of it.
create unique index memories_key on memories (space_id, key_namespace, key)
    where key is not null and state in (1, 2, 4, 7);
create index memories_by_bucket on memories (space_id, bucket_id, state) include (length);
create index memories_by_create_time on memories (space_id, create_time, uid);
create index memories_by_content on memories (space_id, content_hash);
create index memories_superseding on memories (superseded_by) where superseded_by is not null;
create index memories_by_lexeme on memories using gin (lexemes) with (fastupdate = off);

create table revisions (
    memory uuid not null references memories on delete cascade,
    revision int not null,
    space_id int not null,
    change smallint not null,
    state smallint not null,
    body jsonb not null,
    content_hash bytea not null,
    actor text not null,
    reason text not null,
    run text not null,
    conversation text not null,
    create_time timestamptz not null,
    primary key (memory, revision)
);

create table relations (
    space_id int not null references spaces on delete cascade,
    id text not null,
    source uuid not null references memories on delete cascade,
    type text not null,
    target uuid not null references memories on delete cascade,
    strength float8 not null,
    context text not null,
    create_time timestamptz not null,
    primary key (space_id, id),
    constraint relations_edge unique (source, type, target)
);
create index relations_by_target on relations (target, type);

create table ballots (
    memory uuid not null references memories on delete cascade,
    voter text not null,
    run text not null,
    signal smallint not null,
    space_id int not null,
    reason text not null,
    create_time timestamptz not null,
    primary key (memory, voter, run, signal)
);

-- Narrow and often written, so apart from the memories themselves.
create table usages (
    memory uuid primary key references memories on delete cascade,
    space_id int not null,
    use_count int not null,
    last_used_time timestamptz not null
);

-- What a request was answered, so that a retry within 24 hours gets the same answer.
create table answers (
    space_id int not null references spaces on delete cascade,
    owner text not null,
    request_id text not null,
    request_hash text not null,
    result jsonb not null,
    create_time timestamptz not null,
    primary key (space_id, owner, request_id)
);
create index answers_by_time on answers (create_time);

-- Kept for good, so that an index is rebuilt without embedding again. The last two columns say all that the dense leg
-- asks of a memory when nothing special is selected; they change in the same statement as the memory.
create table embeddings (
    memory uuid primary key references memories on delete cascade,
    space_id int not null,
    model smallint not null references embedding_models,
    text_hash bytea not null,
    embedding halfvec not null,
    bucket_id bigint not null,
    found_until timestamptz not null -- when it goes stale or ceases to hold; -infinity unless it is active
);
alter table embeddings alter column embedding set storage plain;
create index embeddings_by_bucket on embeddings (space_id, bucket_id);
create index embeddings_by_model on embeddings (model);

-- Document frequencies by bucket, rebuilt in the background; never written by Store.
create table bucket_statistics (
    bucket_id bigint primary key references buckets on delete cascade,
    space_id int not null,
    version int not null,
    documents int not null,
    total_length bigint not null,
    build_time timestamptz not null
);
create table bucket_terms (
    bucket_id bigint not null references buckets on delete cascade,
    term text not null,
    documents int not null,
    primary key (bucket_id, term)
);
