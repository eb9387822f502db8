"""The journal store: what the pipeline writes and readers read. `api` has the contracts; the rest back-ends share."""
