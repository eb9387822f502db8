-- All that was counted.
SELECT key, parcels, shipped FROM public.shop_totals;
