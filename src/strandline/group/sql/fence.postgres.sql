-- Nobody raises it until this transaction has ended. $1 history_id, $2 stream
SELECT fence FROM {schema}.strandline_target WHERE history_id = $1 AND stream = $2 FOR SHARE
