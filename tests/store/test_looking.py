"""A person can look: events in `sqlite3` and `psql`, with nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import strandline
from strandline import Event, Strandline
from strandline.servers.postgres import PostgresServer
from strandline.testing import carry

LOOK = "SELECT key, seq_nr, time, type, tags, metadata, payload FROM event WHERE key = 'order|42' ORDER BY seq_nr"
LONG, TRACE = {"note": "ß" * 32_000}, {"trace": "7" * 2_000}  # what follows them is at no place of two bytes


def record(s: Strandline) -> None:
    placed = Event("Placed", {"total": 99, "by": "Zoë"}, tags=["blue", "größe"], metadata=LONG)
    s.journal.append("order|42", [placed], headers=TRACE)
    s.journal.append("order|42", [Event("Bestätigt", b"\x00\xff")], headers={"trace": "7"})
    s.journal.append("order|42", [Event("Counted", 7)])
    s.journal.append("order|43", [Event("Placed", None)])
    s.journal.append("order|43", [Event("Paid", [1])])
    s.journal.delete("order|43", to=1)
    carry(s)
    s.journal.append("order|42", [Event("Waiting", 1)])  # not carried: the store has nothing of it yet


SHOWN = [
    (1, "Placed", ["blue", "größe"], LONG),
    (2, "Bestätigt", [], None),
    (3, "Counted", [], None),
]


def when(s: Strandline) -> list[datetime]:
    return [datetime.fromtimestamp(event.timestamp / 10**6, UTC) for event in s.journal.read("order|42", to=3)]


def by_sqlite3(path: Path, *queries: str) -> list[list[Any]]:
    """Rows as Python's own module gives them, in a process of its own."""
    code = (
        "import json, sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "show = lambda v: v.hex() if isinstance(v, bytes) else v;"
        "print(json.dumps([[list(map(show, row)) for row in c.execute(q)] for q in sys.argv[2:]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), *queries], capture_output=True, text=True, check=True)
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def test_in_sqlite3(tmp_path: Path) -> None:
    with strandline.connect(f"sqlite:{tmp_path}/shop") as s:
        record(s)
        times = when(s)
    rows, totals, others = by_sqlite3(
        tmp_path / "shop" / "store.db",
        LOOK,
        "SELECT payload ->> '$.total' FROM event WHERE type = 'Placed'",
        "SELECT seq_nr, headers, damaged FROM event WHERE key = 'order|43' OR seq_nr = 2",
    )
    shown = [
        (n, type_, json.loads(tags), metadata and json.loads(metadata)) for _, n, _, type_, tags, metadata, _ in rows
    ]
    assert shown == SHOWN
    assert [datetime.fromisoformat(row[2]) for row in rows] == times
    assert [rows[0][6], rows[1][6], rows[2][6]] == ['{"total":99,"by":"Zoë"}', "00ff", "7"]
    assert totals == [[99]]
    assert sorted(others, key=str) == [[2, '{"trace":"7"}', None], [2, None, None]]


def test_in_psql(postgres: PostgresServer) -> None:
    url = postgres.database()
    with strandline.connect(url) as s:
        record(s)
        times = when(s)
    with psycopg.connect(url) as session:
        session.execute("SET search_path TO strandline")
        rows = session.execute(LOOK).fetchall()
        totals = session.execute("SELECT payload ->> 'total' FROM event WHERE type = 'Placed'").fetchall()
        raw = session.execute(
            "SELECT payload_bytes, headers, damaged FROM event WHERE seq_nr = 2 ORDER BY key"
        ).fetchall()
    assert [(n, type_, tags, metadata) for _, n, _, type_, tags, metadata, _ in rows] == SHOWN
    assert [row[2] for row in rows] == times
    assert [row[6] for row in rows] == [{"total": 99, "by": "Zoë"}, None, 7]
    assert totals == [("99",)]
    assert raw == [(b"\x00\xff", {"trace": "7"}, None), (None, None, None)]


@pytest.mark.parametrize("form", ["undecodable", "digest"])
def test_what_is_damaged_says_so(form: str, tmp_path: Path, postgres: PostgresServer) -> None:
    byte = {"undecodable": 2, "digest": 3}[form]
    url = postgres.database()
    for where in (f"sqlite:{tmp_path}/shop", url):
        with strandline.connect(where) as s:
            s.journal.append("order|42", [Event("Placed", 1)])
            carry(s)
    change = f"UPDATE journal SET body = substr(body, 1, 17) || x'0{byte}' || substr(body, 19)"
    path = tmp_path / "shop" / "store.db"
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    cast = change.replace("body =", "body = CAST(").replace("19)", "19) AS BLOB)")
    subprocess.run([sys.executable, "-c", code, str(path), cast], check=True)
    assert by_sqlite3(path, "SELECT seq_nr, type, payload, damaged FROM event") == [[[1, "Placed", None, form]]]
    with psycopg.connect(url) as session:
        session.execute(f"UPDATE strandline.journal SET body = set_byte(body, 17, {byte})")
        found = session.execute("SELECT seq_nr, type, payload, payload_bytes, damaged FROM strandline.event").fetchall()
    assert found == [(1, "Placed", None, None, form)]
