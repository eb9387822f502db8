-- Where the heads of keys are that are new; fails if one is not.
INSERT OR FAIL INTO latest (key_hash, seq) VALUES (?, ?);
