"""The Journal: append, read, delete, purge, mark, head, snapshots. It joins a log and a store, whatever they are."""
