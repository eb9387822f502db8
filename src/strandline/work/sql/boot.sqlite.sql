-- The machine was started again: who held a claim is gone.
UPDATE work_{1}_state SET beat = 0 - lease - 1, look_at = 0 WHERE status = 'P';
