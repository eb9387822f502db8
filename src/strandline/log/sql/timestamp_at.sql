-- When the action at a place was recorded.
SELECT timestamp FROM action WHERE place = ?;
