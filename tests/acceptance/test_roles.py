"""Roles on real servers: each user can do all that its role is for, and is refused the rest, in our words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import apsw
import httpx
import psycopg
import pytest
from tests.acceptance.cli_call import call
from tests.projection.worlds import caught_up, running, until
from tests.server.worlds import served
from tests.servers.spares import CASSANDRA, SpareCassandra
from tests.store.keyspaces import TABLES

import strandline
from strandline import Group
from strandline.backends.cassandra import Session
from strandline.backends.cassandra.statements import parts as parts_of
from strandline.connect import Strandline, parts
from strandline.errors import StrandlineError, Unavailable
from strandline.log.api import ActionDraft
from strandline.projection.definition import BySlices, Projection
from strandline.record import BadHeader, decode_header, encode_header, sealed
from strandline.servers.postgres import PostgresServer
from strandline.testing import carry
from strandline.urls import urls_of
from strandline.values.actions import Delete, Mark, Purge
from strandline.values.events import Event
from strandline.values.keys import Key

ROLES = ("append", "delete", "pipeline", "project", "read")
"""On PostgreSQL."""
USED = {
    "append": {"log_action": "INSERT", "log_head": "INSERT UPDATE", "snapshot": "INSERT UPDATE"},
    "delete": {"log_action": "INSERT", "log_head": "INSERT UPDATE", "snapshot": "INSERT UPDATE DELETE"},
    "pipeline": {
        "log_action": "INSERT DELETE", "log_head": "INSERT UPDATE",
        **dict.fromkeys(
            "journal metajournal ended pointer quarantine repaired tag_view tag_progress lease snapshot".split(),
            "INSERT UPDATE DELETE",
        ),
    },
    "project": dict.fromkeys(
        (
            "projection projection_host projection_range projection_offset projection_request projection_dead_letter "
            "projection_settled"
        ).split(),
        "INSERT UPDATE DELETE",
    ),
    "read": {},
}  # fmt: skip
"""What each may do to the rows of a table, beside looking."""
COLUMNS = {
    "append": {"log_partition.newest", "log_partition.timestamp", "pointer.revision"},
    "pipeline": {"log_partition.newest", "log_partition.timestamp", "log_partition.trimmed"},
}
"""Columns that a role may update in a table of which it may not update all."""
PASSWORD = "a-Secret_1"


@dataclass(frozen=True, slots=True)
class Shared:
    """A journal with a user for each role, and its owner."""

    own: str
    schema: str

    def url(self, role: str) -> str:
        return self.own.replace("postgres@", f"{self.schema}_user_{role}@")

    def open(self, role: str) -> Strandline:
        return strandline.connect(self.url(role), schema="check", lease_s=3)


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Shared]:
    """A journal whose roles were made by what the command prints, which is given to the server twice."""
    own, schema = f"{postgres.database()}&schema=guarded", "guarded"
    with strandline.connect(own, partitions=2) as s:
        s.journal.append("order|1", [Event("Placed", {"n": 1}, tags=["blue"])] * 3, append_id="first")
        carry(s)
        with running(s, Projection("shown", BySlices("order"), lambda tx, event: None)):
            pass
    printed = call("schema", "roles", "--url", own)
    assert printed.code == 0, printed.err
    with psycopg.connect(own.partition("&")[0], autocommit=True) as connection:
        for _ in range(2):
            connection.execute(printed.out)
        for role in ROLES:
            connection.execute(f"CREATE ROLE {schema}_user_{role} LOGIN IN ROLE {schema}_{role}")
    yield Shared(own, schema)
    with psycopg.connect(own.partition("&")[0], autocommit=True) as connection:
        for name in [*(f"{schema}_user_{role}" for role in ROLES), *(f"{schema}_{role}" for role in ROLES)]:
            connection.execute(f"DROP OWNED BY {name}")
            connection.execute(f"DROP ROLE {name}")


def refused(do: Callable[[], Any]) -> None:
    """The server refuses it: nothing took effect, and the words say what to do about it."""
    with pytest.raises(Unavailable) as caught:
        do()
    assert (caught.value.name, caught.value.applied, caught.value.retryable) == ("Unavailable.away", "no", False)
    assert "grant" in caught.value.hint


@pytest.mark.req("D8")
def test_each_role_has_the_rights_that_it_needs_and_no_others(shared: Shared) -> None:
    """Of all tables, those of the schema's own too."""
    with psycopg.connect(shared.own.partition("&")[0]) as connection:
        tables = connection.execute(
            "SELECT relname, oid FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'v')",
            [shared.schema],
        ).fetchall()
        assert {f"{part.prefix}setting" for kind, part in parts().items() if kind != "work"} <= {
            name for name, _ in tables
        }
        for role in ROLES:
            own = f"{shared.schema}_{role}"
            for table, oid in tables:
                found = {
                    right
                    for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
                    if connection.execute("SELECT has_table_privilege(%s, %s::oid, %s)", (own, oid, right)).fetchone()[
                        0
                    ]  # type: ignore[index]
                }
                assert found == {"SELECT", *USED[role].get(table, "").split()}, (role, table)
                columns = connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped "
                    "AND has_column_privilege(%s, attrelid, attnum, 'UPDATE')",
                    (oid, own),
                ).fetchall()
                expected = {
                    name for name in COLUMNS.get(role.replace("delete", "append"), ()) if name.startswith(f"{table}.")
                }
                if "UPDATE" not in found:
                    assert {f"{table}.{name}" for (name,) in columns} == expected, (role, table)
            for right in ("CREATE", "USAGE"):
                row = connection.execute(
                    "SELECT has_schema_privilege(%s, %s, %s)", (own, shared.schema, right)
                ).fetchone()
                assert row == (right == "USAGE",)


@pytest.mark.req("D8")
def test_a_service_records_and_reads_and_deletes_nothing(shared: Shared) -> None:
    with shared.open("append") as s:
        journal = s.journal
        for _ in range(2):
            journal.append("order|2", [Event("Placed", {"n": 2})], expected=0, append_id="mine")
        for _ in range(3):  # also in the one round trip of a lone writer
            journal.append("order|2", [Event("Paid", {"kind": "delete"})])
            journal.append("order|1", [Event("Paid")])
        journal.save_snapshot("order|1", 1, {"n": 1})
        journal.save_snapshot("order|1", 1, {"n": 2})
        assert [event.type for event in journal.read("order|2")] == ["Placed", "Paid", "Paid", "Paid"]
        mark = Mark(None, uuid4().hex)
        s.log.append([ActionDraft(0, mark, encode_header(mark))])
        before = list(journal.read("order|1"))
        for do in (
            lambda: journal.delete("order|1", to=1),
            lambda: journal.purge("order|1"),
            lambda: journal.delete_snapshots("order|1"),
            lambda: s.store.lease().take("a service"),
        ):
            refused(do)
        assert list(journal.read("order|1")) == before
        assert len(journal.snapshots("order|1")) == 1
        for table in ("journal", "metajournal", "pointer", "tag_view"):
            with s.store._database.connection() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):  # type: ignore[attr-defined]
                connection.execute(f"DELETE FROM guarded.{table}".encode())
        # It may hold the row of a pointer, and cannot move it.
        with s.store._database.connection() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):  # type: ignore[attr-defined]
            connection.execute(b"UPDATE guarded.pointer SET revision = revision + 1")
    with shared.open("delete") as s:
        s.journal.append("order|3", [Event("Placed")] * 2)
        assert s.journal.delete("order|3", to=1)
        s.journal.save_snapshot("order|3", 2, {})
        assert s.journal.delete_snapshots("order|3") == 1
        s.journal.purge("order|3")
        assert not list(s.journal.read("order|3"))
        refused(lambda: s.store.lease().take("a service"))


@pytest.mark.req("D8")
def test_no_header_that_passes_for_an_append_deletes() -> None:
    """The database looks at the first kind in a header; who reads records must not go by a second one."""
    for action in (Delete("order|1", 1), Purge("order|1")):
        header = encode_header(action)
        assert type(decode_header(header)) is type(action)
        body = b"{" + header[18:].replace(b'"kind":', b'"kind":"append","kind":', 1)
        with pytest.raises(BadHeader):
            decode_header(sealed(body))


@pytest.mark.req("D8")
def test_the_pipeline_carries_expires_and_trims(shared: Shared) -> None:
    with shared.open("append") as s:
        s.journal.append("order|4", [Event("Placed", tags=["red"])])
    with shared.open("pipeline") as s:
        carry(s)
        assert list(s.by_tag("red"))
        s.journal.purge("order|4")
        carry(s)
        assert s.log.trim(0, to=s.log.newest()[0], pointer=s.log.newest()[0], keep_after=2**62) >= 0
        s.log.trim(1, to=s.log.newest()[1], pointer=s.log.newest()[1], keep_after=2**62)
        assert not [page for n in range(2) for page in s.log.read(n, after=s.log.oldest()[n] - 1).records]


@pytest.mark.req("D8")
def test_a_projection_keeps_its_offsets_and_writes_nothing_else(shared: Shared) -> None:
    seen: list[str] = []
    projection = Projection("looks", BySlices("order"), lambda tx, event: seen.append(str(event.key)))
    with shared.open("append") as s:
        s.journal.append("order|5", [Event("Placed")])
    with shared.open("pipeline") as s:
        carry(s)
    with shared.open("project") as s:
        with running(s, projection):
            until(lambda: "order|5" in seen and caught_up(s, "looks"))
        refused(lambda: s.journal.append("order|5", [Event("Placed")]))
        assert s.projections.status("looks").ranges


@pytest.mark.req("D8")
def test_event_groups_append_and_no_more(shared: Shared, tmp_path: Path) -> None:
    """Their history is journals; the tables that they change are granted by their owner."""
    apsw.Connection(f"{tmp_path}/bank.db").execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER)")
    group = Group("gift")
    group.insert("give", "INSERT INTO account VALUES (1, 10)", target="bank")
    with shared.open("append") as s:
        groups = s.groups(targets={"bank": f"sqlite:{tmp_path}/bank.db"}, lease_s=1)
        handle = groups.submit(group)
        groups.processor().run_until_idle()
        assert handle.wait(5).state == "committed"


@pytest.mark.req("D8")
def test_a_console_shows_all_and_writes_nothing(shared: Shared, tmp_path: Path) -> None:
    with shared.open("read") as s, served(s, tmp_path) as server, server.client() as client:
        with httpx.Client(base_url=server.url, timeout=30) as browser:
            assert browser.post("/console/login", data={"token": server.token}).status_code == 303
            for page in (
                "",
                "/journals?entity_type=order",
                "/journals/order%7C1",
                "/projections",
                "/groups",
                "/work",
                "/acts",
            ):
                answer = browser.get(f"/console{page}")
                assert answer.status_code == 200, (page, answer.text)
        assert client.get("/journals/order%7C1").status_code == 200
        told = client.post("/journals/order%7C1/events", json={"events": [{"type": "Placed"}]})
        check_told(told)
        check_told(client.post("/projections/shown/pause", json={"why": "to see"}))
        refused(lambda: s.store.lease().take("a console"))
        with pytest.raises(StrandlineError):
            s.journal.save_snapshot("order|1", 1, {})


def check_told(answer: httpx.Response) -> None:
    """An error as all are: no traceback, what was not done, and what to do."""
    assert answer.status_code == 503, answer.text
    told = answer.json()
    assert (told["code"], told["applied"]) == ("away", "no")


@pytest.mark.req("D8")
def test_files_have_no_roles(tmp_path: Path) -> None:
    strandline.connect(f"sqlite:{tmp_path}/shop").close()
    answer = call("schema", "roles", "--url", f"sqlite:{tmp_path}/shop", "--json")
    assert (answer.code, answer.name) == (7, "Unsupported.roles")


@pytest.mark.parametrize("prefix", ["9", "a b", 'a"b', "", "x" * 49])
def test_a_prefix_is_a_plain_name(shared: Shared, prefix: str) -> None:
    answer = call("schema", "roles", "--url", shared.own, "--json", f"--prefix={prefix}")
    assert (answer.code, answer.problem["code"]) == (2, "schema")


@pytest.mark.req("D8")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:.*accept_power_loss is on:RuntimeWarning")
def test_on_cassandra(spare_cassandra: SpareCassandra, tmp_path: Path) -> None:
    """Services read and save snapshots, the pipeline carries, a console looks, and none does more."""
    own = CASSANDRA.format_map({**spare_cassandra.words, "name": "guarded"})
    log = f"sqlite:{tmp_path}/log.db"

    def opened(user: str) -> Strandline:
        store = own.replace("//cassandra:cassandra@", f"//{user}@")
        return strandline.connect(log=log, store=store, accept_power_loss=True, lease_s=3)

    with opened("cassandra:cassandra") as s:
        s.journal.append("order|1", [Event("Placed", tags=["blue"])] * 3)
        carry(s)
    printed = call("schema", "roles", "--log", log, "--store", own)
    assert printed.code == 0, printed.err
    with closing(Session(urls_of(log=log, store=own).store, 30)) as session:
        for _ in range(2):
            for text in parts_of(printed.out):
                session._open().execute(text)
        for role in ("append", "pipeline", "read"):
            session._open().execute(f"CREATE ROLE user_{role} WITH LOGIN = true AND PASSWORD = '{PASSWORD}'")
            session._open().execute(f"GRANT guarded_{role} TO user_{role}")
        given = {
            (role.removeprefix("guarded_"), right, resource.removeprefix("data/guarded").removeprefix("/"))
            for role, resource, rights in session._open().execute(
                "SELECT role, resource, permissions FROM system_auth.role_permissions"
            )
            if role.startswith("guarded_")
            for right in rights
        }
    looked = [(role, "SELECT") for role in ("read", "append", "pipeline")]
    assert given == {
        *((*look, place) for look in looked for place in ("", "data/system_views/settings")),
        ("append", "MODIFY", "snapshot"), *(("pipeline", "MODIFY", name) for name in TABLES),
    }  # fmt: skip
    with opened(f"user_append:{PASSWORD}") as s:
        s.journal.append("order|2", [Event("Placed", tags=["blue"])])
        s.journal.save_snapshot("order|1", 1, {"n": 1})
        assert len(list(s.journal.read("order|1"))) == 3
        refused(lambda: s.store.lease().take("a service"))
    with opened(f"user_pipeline:{PASSWORD}") as s:
        s.journal.delete("order|1", to=1)
        s.journal.purge("order|2")
        carry(s)
        assert s.store.pointers()
    with opened(f"user_read:{PASSWORD}") as s:
        assert [event.seq_nr for event in s.journal.read("order|1")] == [2, 3]
        refused(lambda: s.journal.save_snapshot("order|1", 2, {"n": 2}))
        refused(lambda: s.store.lease().take("a console"))


NASTY = "it's\"; DROP TABLE log_action; -- $1 {schema} ? % \U0001f600"


@pytest.mark.req("D8")
def test_values_and_names_from_outside_are_no_statements(postgres: PostgresServer, tmp_path: Path) -> None:
    """Keys, types, tags, ids, payloads as values; a schema's name, quoted, also in what makes roles."""
    server = f"{postgres.database()}"
    name = NASTY[:24]
    own = f"{server}&schema={quote(name, safe='')}"
    for url in (own, f"sqlite:{tmp_path}/shop"):
        with strandline.connect(url) as s:
            key = Key(NASTY, NASTY)
            s.journal.append(
                key, [Event(NASTY, {NASTY: NASTY}, tags=[NASTY], metadata={NASTY: NASTY})], append_id=NASTY
            )
            s.journal.save_snapshot(key, 1, {NASTY: NASTY})
            carry(s)
            (event,) = s.by_tag(NASTY)
            assert (event.type, event.payload, event.key) == (NASTY, {NASTY: NASTY}, key)
            assert list(s.journal.keys(NASTY)) == [key]
            s.journal.delete(key, to=1)
            s.journal.purge(key)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(call("schema", "roles", "--url", own, "--prefix", "nasty").out)
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", [name]).fetchall()
        assert found == [(name,)]
        for role in ROLES:
            connection.execute(f"DROP OWNED BY nasty_{role}")
            connection.execute(f"DROP ROLE nasty_{role}")


@pytest.mark.req("D8")
def test_no_statement_of_the_product_is_glued_together() -> None:
    """Ruff looks for text that becomes SQL; what it is told to leave alone makes statements from declarations."""
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "S608", "--ignore-noqa", "--output-format",
         "json", "src/strandline"], cwd=root, capture_output=True, check=False,
    )  # fmt: skip
    places = {Path(one["filename"]).relative_to(root / "src/strandline").as_posix() for one in json.loads(found.stdout)}
    assert {place for place in places if not place.startswith(("testing/", "bench/"))} == {
        "group/statements/binding.py", "group/statements/cql_planning.py", "group/statements/texts.py",
        "store/table_statements.py",
    }  # fmt: skip
