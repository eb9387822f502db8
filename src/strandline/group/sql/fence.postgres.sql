-- Nobody raises it until this transaction has ended. $1 owner
SELECT fence FROM {schema}.strandline_target WHERE owner = $1 FOR SHARE
