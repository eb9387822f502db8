-- Who runs a projection.
SELECT host, beat FROM {schema}.projection_host WHERE projection = $1::text;
