"""The Journal: append, read, delete, purge, mark, head, snapshots. It works with any log and any store."""
