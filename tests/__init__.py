"""Tests of Strandline; `docs/spec` says what must hold, `@pytest.mark.req` says which test proves it."""
