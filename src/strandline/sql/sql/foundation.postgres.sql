-- What every part has: which steps of its schema are done, what its creation fixed, and who changes it.
CREATE TABLE IF NOT EXISTS {schema}.{prefix}schema_step (
    nr bigint NOT NULL PRIMARY KEY,
    name text NOT NULL UNIQUE,
    additive boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.{prefix}setting (
    name text NOT NULL PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.{prefix}lock (
    name text NOT NULL PRIMARY KEY,
    holder text NOT NULL,
    taken bigint NOT NULL
);
