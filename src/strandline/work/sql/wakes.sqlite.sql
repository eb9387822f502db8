-- How often something became claimable.
SELECT wakes FROM work_journal WHERE number = $1;
