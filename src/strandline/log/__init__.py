"""The action log: where an append becomes durable. `api` is the contract; the rest is what back-ends share."""
