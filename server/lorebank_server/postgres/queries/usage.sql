-- name: record
select record_usage($1::uuid[], $2::int[], $3::int[], $4::timestamptz[])
