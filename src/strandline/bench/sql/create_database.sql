-- A database for one round.
CREATE DATABASE {database};
