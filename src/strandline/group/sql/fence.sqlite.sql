-- $1 owner
SELECT fence FROM {schema}.strandline_target WHERE owner = $1
