"""What every part of the tests shares."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is slow at making examples too; how long anything takes is measured elsewhere.
settings.register_profile("strandline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("strandline")


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start: a shell's background jobs are started deaf to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
