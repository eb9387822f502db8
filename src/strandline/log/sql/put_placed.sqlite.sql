-- All actions up to this one can be found by their place.
UPDATE placed SET seq = ?;
