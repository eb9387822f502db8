-- Who may do what on the tables of a log.

-- name: roles (postgres)
-- The log: services record, the pipeline also trims. A record is never changed.
GRANT USAGE ON SCHEMA {schema} TO {read};
REVOKE ALL ON {schema}.log_action, {schema}.log_head, {schema}.log_partition FROM {append}, {delete}, {pipeline}, {project};
GRANT SELECT ON {schema}.log_action, {schema}.log_head, {schema}.log_partition,
    {schema}.log_setting, {schema}.log_schema_step, {schema}.log_lock TO {read};
GRANT INSERT ON {schema}.log_action TO {append}, {delete};
GRANT INSERT, UPDATE ON {schema}.log_head TO {append}, {delete};
GRANT UPDATE (newest, timestamp) ON {schema}.log_partition TO {append}, {delete};
GRANT DELETE ON {schema}.log_action TO {pipeline};
GRANT UPDATE (trimmed) ON {schema}.log_partition TO {pipeline};

-- {append} records Append and Mark alone: what an action is stands behind the checksum of its header.
ALTER TABLE {schema}.log_action ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS rights_decide_reads ON {schema}.log_action;
CREATE POLICY rights_decide_reads ON {schema}.log_action FOR SELECT USING (true);
DROP POLICY IF EXISTS rights_decide_trims ON {schema}.log_action;
CREATE POLICY rights_decide_trims ON {schema}.log_action FOR DELETE USING (true);
DROP POLICY IF EXISTS {append} ON {schema}.log_action;
CREATE POLICY {append} ON {schema}.log_action FOR INSERT TO {append}
    WITH CHECK (substring(header FROM 19 FOR 20) = '"v":1,"kind":"append' OR substring(header FROM 19 FOR 18) = '"v":1,"kind":"mark');
DROP POLICY IF EXISTS {delete} ON {schema}.log_action;
CREATE POLICY {delete} ON {schema}.log_action FOR INSERT TO {delete} WITH CHECK (true);
COMMIT;
