-- Its dead letters above a time go.
DELETE FROM {schema}.projection_dead_letter WHERE projection = $1::text AND timestamp > $2::bigint;
