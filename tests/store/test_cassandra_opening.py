"""Opening a keyspace: what is created, what is compared, and what is refused with a hint that says what to do."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ServerError

import strandline
from strandline.backends.cassandra import Session, describe_keyspace, upgrade_keyspace
from strandline.backends.cassandra.address import tls_of
from strandline.backends.cassandra.checks import TARGET_VERSION_LEAST, check_version, replicas_of
from strandline.backends.cassandra.driver_errors import outcome_of
from strandline.backends.cassandra.schema import open_keyspace
from strandline.backends.cassandra.session import _cluster_of
from strandline.errors import InvalidInput, SchemaMismatch, StrandlineError, Unavailable, Unsupported
from strandline.servers.cassandra import CassandraServer
from strandline.sql.steps import steps_in
from strandline.store.creation import to_fix
from strandline.testing import carry
from strandline.testing.faults import Crash, Faults, crash
from strandline.urls import Url, urls_of
from tests.servers.spares import CASSANDRA, SpareCassandra
from tests.store.keyspaces import RELAXED, by_hand, open_store, settings_for, url_of

pytestmark = RELAXED
PASSWORD = "s3cret-and-never-shown"


@pytest.fixture(scope="module")
def made(cassandra: CassandraServer) -> Url:
    """A keyspace with a store in it, which no test here changes for good."""
    url = url_of(cassandra, "made")
    open_store(url).close()
    return url


def asked(url: Url, *queries: str) -> list[Any]:
    """The rows of the last of these queries."""
    with closing(Session(url, 30)) as session:
        return [by_hand(session, query) for query in queries][-1]


def keyspaces(url: Url) -> dict[str, str]:
    """All keyspaces of a cluster, with their replication."""
    rows = asked(url, "SELECT keyspace_name, replication FROM system_schema.keyspaces")
    return {name: str(replication) for name, replication in rows}


# ---------------------------------------------------------------- settings, version


@pytest.mark.req("J111", "U5", "RR6")
@pytest.mark.parametrize(
    ("given", "error", "facts"),
    [
        ({"partitions": 4}, "setting", {"setting": "partitions", "stored": 1, "given": 4}),
        ({"segment_size": 4}, "setting", {"setting": "segment_size", "stored": 3, "given": 4}),
        ({"append_ids_kept": 4}, "setting", {"setting": "append_ids_kept", "stored": 32, "given": 4}),
        ({"bucket_size": "day"}, "setting", {"setting": "bucket_size", "stored": "hour", "given": "day"}),
        ({"log_id": "other"}, "log_replaced", {"stored": "tape", "given": "other"}),
    ],
)
def test_a_start_with_other_values_is_refused(
    made: Url, given: dict[str, object], error: str, facts: dict[str, object]
) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        open_store(made, **given)  # type: ignore[arg-type]
    assert refused.value.code == error
    assert refused.value.facts == facts


@pytest.mark.req("J109")
def test_nothing_is_created_where_only_a_check_is_wanted(cassandra: CassandraServer, made: Url) -> None:
    before = keyspaces(made)
    absent = url_of(cassandra, "absent")
    for given in ({"schema": "check"}, {"log_id": None}):
        with pytest.raises(SchemaMismatch) as refused:
            open_store(absent, **given)
        assert refused.value.name == "SchemaMismatch.no_schema"
    assert keyspaces(made) == before


@pytest.mark.req("J110", "RS5")
def test_a_skipped_step_a_newer_step_and_a_changed_table_are_found(cassandra: CassandraServer) -> None:
    url = url_of(cassandra, "changed")
    open_store(url).close()
    known = steps_in("strandline.backends.cassandra", "cql")
    last, nr = known[-1].name, len(known)
    asked(url, f"DELETE FROM changed.schema_step WHERE kind = 'store' AND nr = {nr}")
    with pytest.raises(SchemaMismatch) as refused:
        open_store(url)
    assert refused.value.name == "SchemaMismatch.version"
    assert last in refused.value.message
    assert refused.value.remedy == "strandline schema upgrade"
    with closing(Session(url, 10)) as session:
        assert last not in describe_keyspace(session).done
        assert upgrade_keyspace(session) == [last]
        assert upgrade_keyspace(session) == []
    open_store(url).close()
    asked(url, f"INSERT INTO changed.schema_step (kind, nr, name) VALUES ('store', {nr + 1}, '999_later')")
    with pytest.raises(SchemaMismatch) as refused:
        open_store(url)
    assert "999_later" in refused.value.message
    assert "newer" in refused.value.hint
    asked(url, f"DELETE FROM changed.schema_step WHERE kind = 'store' AND nr = {nr + 1}")
    asked(url, "ALTER TABLE changed.snapshot DROP form")
    with pytest.raises(SchemaMismatch) as refused:
        open_store(url)
    assert "table snapshot" in refused.value.message


@pytest.mark.req("J108", "RJ12", "J109")
@pytest.mark.timeout(300)
def test_creators(cassandra: CassandraServer) -> None:
    """Several at once: one schema, no error; those with another log are told."""
    url = url_of(cassandra, "created_at_once")
    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(lambda: open_store(url).close()) for _ in range(6)]:
            future.result()
    with pytest.raises(SchemaMismatch) as refused:
        open_store(url, log_id="another")
    assert refused.value.name == "SchemaMismatch.log_replaced"


class _Early(Session):
    """Lists the first table a moment before the node serves it, as nodes do while somebody creates it."""

    failed = False

    def rows(
        self, name: str, values: Sequence[Any] = (), *, package: str = "strandline.backends.cassandra"
    ) -> list[Any]:
        if name == "settings" and not self.failed:  # a table that was made, whose files were not
            self.failed = True
            said = NoHostAvailable("no host", {"127.0.0.1": ServerError(0, "Unknown CF", None)})
            raise outcome_of(said, self.url, writing=False)
        found = super().rows(name, values, package=package)
        return found or [("setting", "name", "text", "partition_key", 0)] if name == "columns" else found


@pytest.mark.req("J108", "RJ12")
def test_a_table_that_is_listed_and_not_yet_served(cassandra: CassandraServer, made: Url) -> None:
    url, settings = url_of(cassandra, "listed"), settings_for()
    asked(made, "CREATE KEYSPACE listed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    creator = Timer(0.3, lambda: open_store(url).close())
    with closing(_Early(url, 30)) as session:
        creator.start()
        opened = open_keyspace(session, settings, to_fix(settings, "tape", 1), create=True)
        creator.join()
    assert session.failed
    assert opened["log_id"] == "tape"


@pytest.mark.req("J108", "RJ12", "J110")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [1, 3, 9])
def test_a_creation_that_was_killed_is_completed(cassandra: CassandraServer, point: int) -> None:
    """Before its n-th alteration; the lock of the dead is taken over."""
    url, settings = url_of(cassandra, f"killed_{point}"), settings_for()
    fixed = to_fix(settings, "tape", 1)
    faults = Faults()
    with closing(Session(url, 30)) as session:
        faults.at("before session.alter", crash, nth=point + 1)
        faults.at("before session.conditional", crash, nth=2 * point, times=99)  # who is dead frees no lock
        with pytest.raises(Crash):
            open_keyspace(faults.around("session", session), settings, fixed, create=True)
        with pytest.raises(SchemaMismatch):
            open_keyspace(session, settings, fixed, create=False)
        assert open_keyspace(session, settings, fixed, create=True, lock_s=1.0)["log_id"] == "tape"
        done = describe_keyspace(session)
        assert done.done == done.known


# ---------------------------------------------------------------- many stores


@pytest.mark.req("J125")
@pytest.mark.timeout(300)
def test_two_tenants(unused_keyspace: Callable[[], str]) -> None:
    """Two stores on one server, with one key each of the same name: neither sees the other, each has its own lease."""
    stores = unused_keyspace(), unused_keyspace()
    opened = [
        strandline.connect(log="memory:", store=store, accept_power_loss=True, partitions=partitions, lease_s=1)
        for store, partitions in zip(stores, (1, 2), strict=True)
    ]
    first, second = opened
    try:
        first.journal.append("order|1", [strandline.Event("made", {"by": "a"})])
        second.journal.append("order|1", [strandline.Event("made", {"by": "b"})])
        second.journal.append("user|1", [strandline.Event("made", {"by": "b"})])
        with closing(_Held(first)):  # the other's pipeline does not wait for this one's
            carry(second)
        carry(first)
        assert [event.payload for event in first.journal.read("order|1")] == [{"by": "a"}]
        assert [event.payload for event in second.journal.read("order|1")] == [{"by": "b"}]
        assert (first.journal.entity_types(), second.journal.entity_types()) == (["order"], ["order", "user"])
        assert (first.store.settings.partitions, second.store.settings.partitions) == (1, 2)
        first.journal.purge("order|1")
        carry(first)
        assert [event.payload for event in second.journal.read("order|1")] == [{"by": "b"}]
        with pytest.raises(SchemaMismatch) as refused:
            strandline.connect(log="memory:", store=stores[0], accept_power_loss=True, partitions=1)
        assert refused.value.name == "SchemaMismatch.log_replaced"
    finally:
        for s in opened:
            s.close()


class _Held:
    def __init__(self, s: strandline.Strandline) -> None:
        self._lease = s.store.lease().take("held")

    def close(self) -> None:
        self._lease.release()


# ---------------------------------------------------------------- refusals


@pytest.mark.req("U10")
def test_few_replicas_are_refused_before_anything_is_created(cassandra: CassandraServer, made: Url) -> None:
    before = keyspaces(made)
    url = url_of(cassandra, "few")
    with pytest.raises(Unsupported) as refused:
        open_store(url, accept_power_loss=False)
    assert refused.value.name == "Unsupported.cassandra_unsafe"
    assert refused.value.found == 1
    assert "accept_power_loss" in refused.value.hint
    with pytest.raises(Unsupported) as refused:  # and one that is there is not used
        open_store(made, accept_power_loss=False)
    assert refused.value.found == 1
    with pytest.raises(Unsupported) as refused:  # three replicas on one node: nothing could ever be written
        open_store(url_of(cassandra, "few", ""), accept_power_loss=True)
    assert "replication=1" in refused.value.hint
    assert keyspaces(made) == before


@pytest.mark.req("RS11")
def test_each_start_says_what_can_be_lost(made: Url) -> None:
    with pytest.warns(RuntimeWarning, match="1 replica in this data centre: a lost disk loses"):
        open_store(made).close()


@pytest.mark.req("U10")
def test_a_keyspace_without_durable_writes_is_refused(cassandra: CassandraServer, made: Url) -> None:
    url = url_of(cassandra, "volatile")
    asked(
        made,
        "CREATE KEYSPACE volatile WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3} "
        "AND durable_writes = false",
    )
    with pytest.raises(Unsupported) as refused:
        open_store(url, accept_power_loss=False)
    assert refused.value.name == "Unsupported.cassandra_unsafe"
    assert "durable_writes = true" in refused.value.hint


@pytest.mark.req("U10")
@pytest.mark.parametrize("version", ["2.2.19", "3.0.30", "3.11.17"])
def test_a_version_before_4_is_refused(version: str) -> None:
    with pytest.raises(Unsupported) as refused:
        check_version("10.0.0.1", version)
    assert refused.value.name == "Unsupported.cassandra_unsafe"
    assert version in refused.value.message
    for safe in ("4.0.0", "4.1.9", "5.0.8", "5.1-beta1-SNAPSHOT", "10.0"):
        check_version("10.0.0.1", safe)


@pytest.mark.req("U10", "G91")
@pytest.mark.parametrize("version", ["3.11.17", "4.0.0", "4.1.9"])
def test_a_version_before_5_is_refused_as_a_target(version: str) -> None:
    with pytest.raises(Unsupported, match=r"5\.0 or newer for a target of groups") as refused:
        check_version("10.0.0.1", version, TARGET_VERSION_LEAST)
    assert refused.value.found == version
    for safe in ("5.0.0", "5.1-beta1-SNAPSHOT", "10.0"):
        check_version("10.0.0.1", safe, TARGET_VERSION_LEAST)


def test_replicas_are_counted_in_this_data_centre() -> None:
    network = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "5/1"}
    assert [replicas_of(network, name) for name in ("dc1", "dc2", "dc3")] == [3, 5, 0]
    assert replicas_of({"class": "SimpleStrategy", "replication_factor": "2"}, "dc1") == 2


@pytest.mark.req("U10", "RS10")
@pytest.mark.timeout(300)
def test_a_careless_node_and_wrong_passwords(spare_cassandra: SpareCassandra) -> None:
    known = CASSANDRA.format_map({**spare_cassandra.words, "name": "mine"})
    with pytest.raises(Unsupported) as refused:
        open_store(urls_of(log="memory:", store=known).store, accept_power_loss=False)
    assert refused.value.name == "Unsupported.cassandra_unsafe"
    assert refused.value.found == "periodic"
    assert "commitlog_sync: group" in refused.value.hint
    for user in (f"cassandra:{PASSWORD}@", f"nobody:{PASSWORD}@", ""):
        with pytest.raises(Unavailable) as away:
            open_store(urls_of(log="memory:", store=known.replace("cassandra:cassandra@", user)).store)
        _check_refused_user(away.value)


def _check_refused_user(error: StrandlineError) -> None:
    assert (error.name, error.retryable) == ("Unavailable.away", False)
    assert "user and password" in error.hint
    assert PASSWORD not in repr(error) + repr(error.__cause__) + repr(error.__context__) + str(error.facts)


@pytest.mark.req("RS8")
def test_a_cluster_that_is_away_is_said_so_in_time() -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = urls_of(log="memory:", store=f"cassandra://me:{PASSWORD}@127.0.0.1:{port},localhost:{port}/mine").store
    begun = time.monotonic()
    with pytest.raises(Unavailable) as refused:
        open_store(url)
    assert refused.value.name == "Unavailable.away"
    assert refused.value.applied == "no"
    assert PASSWORD not in repr(refused.value)
    assert time.monotonic() - begun < 5


def test_a_host_that_has_no_address() -> None:
    url = urls_of(log="memory:", store="cassandra://no-such-host.invalid/mine?tls=off").store
    with pytest.raises(Unavailable) as refused:
        open_store(url)
    assert refused.value.name == "Unavailable.away"


def test_a_node_that_does_not_speak_tls(cassandra: CassandraServer) -> None:
    with pytest.raises(Unavailable) as refused:
        open_store(url_of(cassandra, "mine", "tls=on"))
    assert refused.value.name == "Unavailable.away"
    assert refused.value.message.endswith("this port does not speak TLS")
    assert "?tls=off" in refused.value.hint


@pytest.mark.req("D4")
@pytest.mark.parametrize(
    ("place", "checked"),
    [
        ("localhost,127.0.0.2,[::1]/mine", False),
        ("localhost/mine?tls=on", True),
        ("db.example/mine", True),
        ("localhost,db.example/mine", True),
        ("db.example/mine?tls=off", False),
    ],
)
def test_what_a_url_says_of_tls(place: str, checked: bool) -> None:
    """Away from this machine TLS with names checked, unless the URL says otherwise."""
    tls = tls_of(urls_of(log="memory:", store=f"cassandra://{place}").store)
    assert (tls is not None) == checked
    if tls is not None:
        assert (tls.check_hostname, tls.verify_mode) == (True, ssl.CERT_REQUIRED)
        assert tls.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.req("D4")
def test_nodes_keep_the_names_that_the_url_gives_them() -> None:
    """A certificate is checked for the name, also of a node that the cluster tells of by its address."""
    cluster = _cluster_of(urls_of(log="memory:", store="cassandra://localhost:7000/mine?tls=on").store, 1)
    named, other = ({"rpc_address": address} for address in ("127.0.0.1", "127.0.0.9"))
    try:
        assert cluster.endpoint_factory.create(named).ssl_options == {"server_hostname": "localhost"}
        assert cluster.endpoint_factory.create(other).ssl_options is None  # checked for its address
    finally:
        cluster.shutdown()


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("mine?replication=0", "url_parameter"),
        ("mine?replication=three", "url_parameter"),
        ("mine?tls=perhaps", "url_parameter"),
        ("mine?synchronous=off", "url_parameter"),
        ("my-keyspace", "url_incomplete"),
        ("a%22%3B%20DROP", "url_incomplete"),
        ("x" * 49, "url_incomplete"),
    ],
)
def test_urls_that_cannot_be_meant(place: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        strandline.connect(log="memory:", store=f"cassandra://127.0.0.1/{place}")
    assert refused.value.code == code


# ---------------------------------------------------------------- processes


@pytest.mark.req("RA15")
def test_a_forked_child_is_refused_and_its_parent_goes_on(made: Url) -> None:
    store = open_store(made)
    lease = store.lease().take("the parent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (store.pointers, lease.check, lease.release, store.close):
            try:
                call()
                said.append("nothing")
            except StrandlineError as error:
                said.append(error.name)
        os.write(writing, " ".join(said).encode())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    refused = "Unsupported.used_after_fork"
    assert os.read(reading, 1000).decode() == f"{refused} {refused} nothing nothing"
    lease.check()
    assert store.lease().holder() is not None
    lease.release()
    store.close()
    os.close(reading)
    os.close(writing)


def test_a_keyspace_is_known_by_its_name_alone(cassandra: CassandraServer) -> None:
    """Upper case is kept: it is another keyspace."""
    name = f"Mixed_{uuid4().hex[:8]}"
    url = url_of(cassandra, name)
    open_store(url).close()
    assert name in keyspaces(url)
