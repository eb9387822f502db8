"""A broker that asks who is there: user and password from the URL, refusals that say so, and never a password."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import strandline
from strandline import Event, Unavailable
from strandline.errors import StrandlineError
from tests.log.topics import RELAXED, new_name
from tests.servers.spares import KAFKA_PASSWORD, KAFKA_USER, SpareKafka

pytestmark = pytest.mark.filterwarnings(RELAXED)
WRONG = "-".join(("wrong", "secret"))  # so that no line of a traceback shows it


@pytest.fixture
def guarded(spare_kafka: SpareKafka) -> str:
    """A listener that asks for user and password."""
    return f"127.0.0.1:{spare_kafka.ports['USERS']}"


def connected(server: str, user_info: str, folder: Path, **settings: Any) -> strandline.Strandline:
    log = f"kafka://{user_info}@{server}/{new_name()}?sasl_mechanism=PLAIN"
    return strandline.connect(log=log, store=f"sqlite:{folder}/store.db", accept_power_loss=True, **settings)


@pytest.mark.req("RS10")
def test_who_is_known_may_enter_and_nobody_else(guarded: str, tmp_path: Path) -> None:
    with connected(guarded, f"{KAFKA_USER}:{quote(KAFKA_PASSWORD, safe='')}", tmp_path) as s:
        assert s.journal.append("order|1", [Event("Placed", 1)], expected=0).first == 1
        assert [event.payload for event in s.journal.read("order|1")] == [1]
        assert KAFKA_PASSWORD not in repr(s) + str(s.status())
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Unavailable) as refused:
        connected(guarded, f"{KAFKA_USER}:{WRONG}", other, append_timeout_s=3)
    error: StrandlineError = refused.value
    assert (error.code, error.applied, error.retryable) == ("away", "no", False)
    told = "".join(traceback.format_exception(error)) + error.hint + repr(error.facts)
    assert error.hint == "check user and password in the URL"
    assert error.message.endswith("Kafka cannot be reached: it refuses this user")
    assert WRONG not in told
    assert list(other.iterdir()) == []


def test_another_mechanism_than_the_brokers(guarded: str, tmp_path: Path) -> None:
    log = f"kafka://{KAFKA_USER}:{WRONG}@{guarded}/{new_name()}"
    with pytest.raises(Unavailable) as refused:
        strandline.connect(log=log, store=f"sqlite:{tmp_path}/store.db")
    assert (refused.value.code, refused.value.hint) == ("away", "give ?sasl_mechanism=PLAIN in the URL")


def test_nobody_where_a_user_is_asked_for(guarded: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as refused:
        strandline.connect(log=f"kafka://{guarded}/{new_name()}", store=f"sqlite:{tmp_path}/store.db")
    assert refused.value.code == "away"
    assert refused.value.message.endswith("it closes every connection")
    assert "kafka://USER:PASSWORD@HOST" in refused.value.hint
