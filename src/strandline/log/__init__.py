"""The action log: where an append becomes durable. `api` is the contract; the other modules are back-ends."""
