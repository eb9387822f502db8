"""Values in PostgreSQL's binary form: the server reads what was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.backends.postgres.binary import (
    Binary,
    bigint,
    bigints,
    blob,
    blobs,
    boolean,
    integer,
    integers,
    register,
    text,
    texts,
)
from strandline.backends.postgres.round_trips import BinaryStatement, Connection
from strandline.log.state_json import state_in, state_text
from strandline.servers.postgres import PostgresServer
from strandline.values.heads import EndedLife, Head, Remembered

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[Connection]:
    with Connection.connect(postgres.url, autocommit=True, cursor_factory=psycopg.RawCursor) as made:
        register(made)
        yield made


@pytest.mark.parametrize(
    ("made", "kind", "elements"),
    [
        (bigints, "bigint", st.one_of(st.none(), NUMBERS)),
        (integers, "integer", st.integers(-(2**31), 2**31 - 1)),
        (texts, "text", st.one_of(st.none(), TEXTS)),
        (blobs, "bytea", st.one_of(st.none(), st.binary())),
    ],
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_arrays(
    connection: Connection,
    made: Callable[[Any], Binary],
    kind: str,
    elements: st.SearchStrategy[Any],
    data: st.DataObject,
) -> None:
    values = data.draw(st.lists(elements, max_size=70))
    ((found,),) = connection.execute(f"SELECT $1::{kind}[]", (made(values),), binary=True).fetchall()
    assert found == values


@pytest.mark.parametrize("direct", [True, False], ids=["prepared", "pooler"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(number=NUMBERS, small=st.integers(-(2**31), 2**31 - 1), said=TEXTS, data=st.binary(), flag=st.booleans())
def test_parameters_and_rows(
    connection: Connection, direct: bool, number: int, small: int, said: str, data: bytes, flag: bool
) -> None:
    connection._direct = direct
    given_ = (bigint(number), integer(small), text(said), blob(data), boolean(flag))
    ask = BinaryStatement(b"SELECT $1, $2, $3, $4, $5, NULL" + b" " * (not direct), given_)
    assert connection.ask(ask) == [(number, small, said, data, flag, None)]


ANSWERS = st.builds(Remembered, TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
HEADS = st.builds(
    Head, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.one_of(st.none(), NUMBERS),
    st.one_of(st.none(), NUMBERS), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.lists(ANSWERS, max_size=3).map(tuple),
    st.one_of(st.none(), ANSWERS),
)  # fmt: skip


@pytest.mark.req("J27")
@given(state=st.one_of(HEADS, st.builds(EndedLife, NUMBERS, NUMBERS, NUMBERS)))
def test_states_come_back_as_they_went_in(state: Head | EndedLife) -> None:
    found = state_in(state_text(state))
    assert (type(found), found) == (type(state), state)
