-- The last action that was recorded and is still there, the last that can be found by its place, whether a life ended.
SELECT coalesce((SELECT max(seq) FROM action), 0), placed.seq, EXISTS (SELECT 1 FROM ended) FROM placed;
