-- The last action that was recorded and is still there, and the last that can be found by its place.
SELECT coalesce((SELECT max(seq) FROM action), 0), placed.seq FROM placed;
