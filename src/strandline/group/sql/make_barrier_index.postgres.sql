-- Rows come in the order of their times, so that this is small and quick to write.
CREATE INDEX IF NOT EXISTS strandline_barrier_at ON {schema}.strandline_barrier USING brin (at)
