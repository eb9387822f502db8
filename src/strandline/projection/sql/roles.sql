-- Who may do what on the tables of projections.

-- name: roles (postgres)
-- Projections: who runs or looks after them keeps their offsets. What their handlers write is granted by its owner.
GRANT USAGE ON SCHEMA {schema} TO {read};
GRANT SELECT ON {schema}.projection, {schema}.projection_host, {schema}.projection_range, {schema}.projection_offset,
    {schema}.projection_request, {schema}.projection_dead_letter, {schema}.projection_settled,
    {schema}.projection_setting, {schema}.projection_schema_step, {schema}.projection_lock TO {read};
GRANT INSERT, UPDATE, DELETE ON {schema}.projection, {schema}.projection_host, {schema}.projection_range,
    {schema}.projection_offset, {schema}.projection_request, {schema}.projection_dead_letter,
    {schema}.projection_settled TO {project};
COMMIT;
