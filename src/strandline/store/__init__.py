"""The journal store, which the pipeline writes and readers read. `api` has the contracts; back-ends share the rest."""
