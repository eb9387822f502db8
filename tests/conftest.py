"""What every part of the tests shares."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The shipped suites show what they compared, like any test; whoever imports them first.
pytest.register_assert_rewrite("strandline.testing.store_contract", "strandline.testing.log_contract")

from tests import lanes  # noqa: E402
from tests.repeats import examples  # noqa: E402
from tests.servers.fixtures import REASONS, cassandra, fetch_for, kafka, postgres, reasons_table, spark_cluster  # noqa: E402
from tests.servers.spares import certificates, spare_cassandra, spare_kafka  # noqa: E402
from tests.store.keyspaces import cassandra_keyspace, cassandra_pool, empty_stores, unused_keyspace  # noqa: E402
from tests.tools.wheels import wheel  # noqa: E402

__all__ = [
    "cassandra", "cassandra_keyspace", "cassandra_pool", "certificates", "empty_stores", "kafka", "postgres",
    "spare_cassandra", "spare_kafka", "spark_cluster", "unused_keyspace", "wheel",
]  # fmt: skip

# A busy machine is slow at making examples too; how long anything takes is measured elsewhere.
settings.register_profile(
    "strandline", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("strandline")


@pytest.hookimpl(trylast=True)  # pytest itself writes traces to where they may be lost
def pytest_configure(config: Any) -> None:
    """Let Ctrl-C reach the programs that tests start: a shell's background jobs are started deaf to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        lanes.keep_trace(Path(config.workerinput["groups"]))


def pytest_unconfigure(config: pytest.Config) -> None:
    lanes.forget(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["groups"] = str(lanes.place_of(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> lanes.Dealer:
    return lanes.Dealer(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        lanes.deal(items, Path(config.workerinput["groups"]))


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        fetch_for(session.items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what the lanes could not have to the process that says it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["reasons"] = REASONS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    REASONS.update(getattr(node, "workeroutput", {}).get("reasons", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once which servers could not be had, and why; and keep what failed for `tools/again.py`."""
    failed = [report.nodeid for name in ("failed", "error") for report in terminalreporter.stats.get(name, [])]
    if (cache := getattr(terminalreporter.config, "cache", None)) is not None:
        cache.set("strandline/failed", list(dict.fromkeys(failed)))
    for trace in lanes.traces(terminalreporter.config):
        terminalreporter.section("a lane crashed")
        terminalreporter.line(trace)
    lines = reasons_table()
    if lines:
        terminalreporter.section("servers that could not be had")
        for line in lines:
            terminalreporter.line(line)
