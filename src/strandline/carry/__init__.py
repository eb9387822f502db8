"""Carries records from log to store, one partition's range at a time, and resolves quarantined records."""
