-- Let nobody else begin anything on the tables of sets until we commit: every transaction looks at the ledger first.
LOCK TABLE {schema}.work_table IN ACCESS EXCLUSIVE MODE;
