-- All that was counted.
SELECT key, parcels, shipped FROM shop_totals;
