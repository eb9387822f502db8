"""Tests of the journal stores beyond their contract: crashes, files, leases, speed of access."""
