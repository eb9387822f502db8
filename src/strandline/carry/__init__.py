"""From log to store: one partition's range, its plain appends by columns, and what an operator does with a record."""
