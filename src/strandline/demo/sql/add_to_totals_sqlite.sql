-- One event more of an order.
INSERT INTO shop_totals (key, parcels, shipped) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET parcels = parcels + excluded.parcels, shipped = shipped + excluded.shipped;
