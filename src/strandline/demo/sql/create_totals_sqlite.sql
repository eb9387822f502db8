-- What the shop's projection has counted, by order.
CREATE TABLE IF NOT EXISTS shop_totals (key TEXT PRIMARY KEY, parcels INTEGER NOT NULL, shipped INTEGER NOT NULL);
