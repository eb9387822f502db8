"""The work journal: entries that wait, claims under lease, dead letters, tables that are emptied as a whole."""
