-- The totals of shops, which a projection of the demo keeps.

-- name: add_to_totals_postgres
-- One event more of an order.
INSERT INTO public.shop_totals AS t (key, parcels, shipped) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET parcels = t.parcels + excluded.parcels, shipped = t.shipped + excluded.shipped;

-- name: add_to_totals_sqlite
-- One event more of an order.
INSERT INTO shop_totals (key, parcels, shipped) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET parcels = parcels + excluded.parcels, shipped = shipped + excluded.shipped;

-- name: all_totals_postgres
-- All that was counted.
SELECT key, parcels, shipped FROM public.shop_totals;

-- name: all_totals_sqlite
-- All that was counted.
SELECT key, parcels, shipped FROM shop_totals;

-- name: create_totals_postgres
-- What the shop's projection has counted, by order.
CREATE TABLE IF NOT EXISTS public.shop_totals (key text PRIMARY KEY, parcels bigint NOT NULL, shipped bigint NOT NULL);

-- name: create_totals_sqlite
-- What the shop's projection has counted, by order.
CREATE TABLE IF NOT EXISTS shop_totals (key TEXT PRIMARY KEY, parcels INTEGER NOT NULL, shipped INTEGER NOT NULL);
