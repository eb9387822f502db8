-- One event more of an order.
INSERT INTO public.shop_totals AS t (key, parcels, shipped) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET parcels = t.parcels + excluded.parcels, shipped = t.shipped + excluded.shipped;
