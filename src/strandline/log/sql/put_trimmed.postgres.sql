-- A partition was trimmed up to here.
UPDATE {schema}.log_partition SET trimmed = greatest(trimmed, $2::bigint) WHERE partition = $1;
