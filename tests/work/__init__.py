"""Tests of the work journal."""
