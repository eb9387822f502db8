"""URLs of servers: what is read from them. What is refused stands in tests/acceptance/test_connect.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.urls import HostPort, masked, urls_of


def test_all_parts_of_a_server() -> None:
    url = urls_of("postgresql://me:pa%2Fss%40word@a:5432,[::1]:6000,c/orders%20of?schema=one%2Ftwo&sslmode=require").log
    assert (url.scheme, url.name, url.user, url.password) == ("postgresql", "orders of", "me", "pa/ss@word")
    assert url.hosts == (HostPort("a", 5432), HostPort("::1", 6000), HostPort("c", None))
    assert url.parameters == {"schema": "one/two", "sslmode": "require"}


def test_log_and_store_of_different_kinds() -> None:
    urls = urls_of(log="kafka://a:9092,b/orders", store="cassandra://user:pw@c/keyspace")
    assert (urls.log.hosts, urls.log.name) == ((HostPort("a", 9092), HostPort("b", None)), "orders")
    assert (urls.store.user, urls.store.password, urls.store.name) == ("user", "pw", "keyspace")
    both = urls_of("postgresql://host/db")
    assert both.log == both.store
    assert (both.log.user, both.log.password) == (None, None)


def test_a_folder_stands_for_a_host() -> None:
    url = urls_of("postgresql://me@/db?host=%2Ftmp%2Fsocket").log
    assert (url.hosts, url.parameters["host"], url.user) == ((), "/tmp/socket", "me")


@pytest.mark.parametrize("url", ["sqlite::memory:", "sqlite:///:memory:", "sqlite://:memory:", "sqlite::MEMORY:"])
def test_the_name_of_sqlite_for_memory_makes_no_folder(url: str) -> None:
    with pytest.raises(InvalidInput, match="SQLite's own name") as caught:
        urls_of(url)
    assert (caught.value.code, caught.value.hint) == ("url_incomplete", "write memory:")
    for given in (
        {"log": url, "store": "memory:"},
        {"url": "memory:", "work": url},
        {"url": "memory:", "projections": url},
    ):
        with pytest.raises(InvalidInput, match="SQLite's own name") as caught:
            urls_of(**given)
        assert ("give a file" in caught.value.hint) == ("log" not in given)


@pytest.mark.parametrize(("url", "near"), [("postgress://host/db", "postgresql"), ("sqllite:shop", "sqlite")])
def test_a_scheme_that_is_nearly_right_is_named(url: str, near: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        urls_of(url)
    assert caught.value.hint == f"did you mean {near}:…?"


def test_postgres_is_postgresql() -> None:
    url = urls_of("postgres://me:hunter22@host:5433/db?schema=s").log
    assert (url.scheme, url.hosts, url.name) == ("postgresql", (HostPort("host", 5433),), "db")
    assert str(url) == "postgres://me:***@host:5433/db?schema=s"


def test_three_slashes_are_refused_and_four_are_the_root() -> None:
    """SQLAlchemy means the folder one is in, file: URLs the root."""
    for given in ({"url": "sqlite:///shop"}, {"log": "sqlite:///shop/log.db", "store": "memory:"}):
        with pytest.raises(InvalidInput) as caught:
            urls_of(**given)
        assert caught.value.code == "url_incomplete"
        here = given.get("url", given.get("log", "")).removeprefix("sqlite:///")
        assert f"sqlite:{here} " in caught.value.hint
        assert f"sqlite:/{here} " in caught.value.hint
    assert urls_of("sqlite:////tmp/shop").log.path == Path("/tmp/shop/log.db")
    assert urls_of("sqlite:/tmp/shop").log.path == Path("/tmp/shop/log.db")


@pytest.mark.req("RS10")
@pytest.mark.parametrize("password", ["hunter22", "x/hunter22", "x?hunter22", "x#hunter22", "x@hunter22", "a:hunter22"])
def test_a_password_is_read_whole_and_never_shown(password: str) -> None:
    text = f"postgresql://me:{password}@host:5432/db?schema=s"
    url = urls_of(text).log
    assert (url.password, url.hosts, url.name) == (password, (HostPort("host", 5432),), "db")
    assert "hunter22" not in repr(url) + str(url) + masked(text)
    assert str(url) == "postgresql://me:***@host:5432/db?schema=s"
