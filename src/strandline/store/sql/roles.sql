-- Who may do what on the tables of a store.

-- name: roles (postgres)
-- The store: the pipeline writes what the log says; services save snapshots beside it.
GRANT USAGE ON SCHEMA {schema} TO {read};
REVOKE ALL ON {schema}.journal, {schema}.metajournal, {schema}.ended, {schema}.pointer, {schema}.quarantine,
    {schema}.repaired, {schema}.tag_view, {schema}.tag_progress, {schema}.lease, {schema}.snapshot
    FROM {append}, {delete}, {pipeline}, {project};
GRANT SELECT ON {schema}.journal, {schema}.metajournal, {schema}.ended, {schema}.pointer, {schema}.quarantine,
    {schema}.repaired, {schema}.tag_view, {schema}.tag_progress, {schema}.lease, {schema}.snapshot, {schema}.event,
    {schema}.setting, {schema}.schema_step, {schema}.lock TO {read};
GRANT INSERT, UPDATE, DELETE ON {schema}.journal, {schema}.metajournal, {schema}.ended, {schema}.pointer,
    {schema}.quarantine, {schema}.repaired, {schema}.tag_view, {schema}.tag_progress, {schema}.lease, {schema}.snapshot
    TO {pipeline};
GRANT INSERT, UPDATE ON {schema}.snapshot TO {append}, {delete};
GRANT DELETE ON {schema}.snapshot TO {delete};

-- Who saves a snapshot holds the row of its partition, so that no purge comes in between, and leaves it as it is.
GRANT UPDATE (revision) ON {schema}.pointer TO {append}, {delete};
ALTER TABLE {schema}.pointer ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS rights_decide_reads ON {schema}.pointer;
CREATE POLICY rights_decide_reads ON {schema}.pointer FOR SELECT USING (true);
DROP POLICY IF EXISTS held_not_changed ON {schema}.pointer;
CREATE POLICY held_not_changed ON {schema}.pointer FOR UPDATE TO {append}, {delete} USING (true) WITH CHECK (false);
DROP POLICY IF EXISTS {pipeline} ON {schema}.pointer;
CREATE POLICY {pipeline} ON {schema}.pointer TO {pipeline} USING (true) WITH CHECK (true);
COMMIT;
