-- Something may be claimable earlier than who waits thinks.
UPDATE work_journal SET wakes = wakes + 1 WHERE number = $1;
