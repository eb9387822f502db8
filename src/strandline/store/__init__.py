"""The journal store: what the pipeline writes and readers read. `api` has the contracts; the other modules are back-ends."""
