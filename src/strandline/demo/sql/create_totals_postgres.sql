-- What the shop's projection has counted, by order.
CREATE TABLE IF NOT EXISTS public.shop_totals (key text PRIMARY KEY, parcels bigint NOT NULL, shipped bigint NOT NULL);
