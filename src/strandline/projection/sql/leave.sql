-- A host goes, or is found dead.
DELETE FROM {schema}.projection_host WHERE projection = $1::text AND host = $2::text;
