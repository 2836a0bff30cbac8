-- name: set_caller
-- Served by spaces_pkey.
with caller as materialized (
    select
        set_config('lorebank.space', $1, false),
        set_config('lorebank.owner', $2, false),
        set_config('lorebank.project', $3, false),
        set_config('lorebank.role', $4, false),
        set_config('lorebank.operator', $5, false)
)
select s.* from caller cross join lateral own_space($6) s
