-- Fence, holder and start of the lease.
SELECT fence, holder, since FROM lease WHERE name = ?;
