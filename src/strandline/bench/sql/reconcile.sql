-- What the bare process reads, beside which reconcile and the archive run.

-- name: count_and_sum
-- How many events there are, and the sum of their digests.
SELECT count(*), sum(digest) FROM journal;
