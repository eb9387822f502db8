-- What is old is found by it.
CREATE INDEX IF NOT EXISTS {schema}.strandline_barrier_at ON strandline_barrier (at)
