"""The action log: where an append becomes durable. `api` is the contract; back-ends share the rest."""
