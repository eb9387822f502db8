-- A table of a set: slot {2} of {1}. Attached, not created as a part: that would wait for everybody who reads another one.
DO $$ BEGIN
CREATE TABLE {schema}.work_{1}_entry_{2} (LIKE {schema}.work_{1}_entry INCLUDING DEFAULTS);
ALTER TABLE {schema}.work_{1}_entry ATTACH PARTITION {schema}.work_{1}_entry_{2} FOR VALUES IN ({2});
CREATE TABLE {schema}.work_{1}_order_{2} (LIKE {schema}.work_{1}_order INCLUDING DEFAULTS);
ALTER TABLE {schema}.work_{1}_order ATTACH PARTITION {schema}.work_{1}_order_{2} FOR VALUES IN ({2});
CREATE TABLE {schema}.work_{1}_state_{2} (LIKE {schema}.work_{1}_state INCLUDING DEFAULTS) WITH (fillfactor = 70);
ALTER TABLE {schema}.work_{1}_state ATTACH PARTITION {schema}.work_{1}_state_{2} FOR VALUES IN ({2});
END $$;
