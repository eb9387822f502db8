"""Errors: the tree is the table of the specification, and an error is as useful in a program as to a reader."""

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline.errors
from strandline.errors import (
    Conflict,
    InvalidGroup,
    InvalidInput,
    SchemaMismatch,
    SeqNrConflict,
    StrandlineError,
    Unavailable,
    invalid,
    shown,
)

ROOT = Path(__file__).parents[2]

# ---------------------------------------------------------------- the table of the specification

LATER_ROWS: set[str] = set()
LATER_CODES: dict[str, set[str]] = {}


def rows() -> Iterator[tuple[str, str, str]]:
    """The rows of the table "Errors", each with the lines that continue it."""
    text = (ROOT / "docs/spec/README.md").read_text(encoding="utf-8")
    section = text.split("\n## Errors\n")[1].split("\n## ")[0]
    found: list[list[str]] = []
    for line in section.splitlines():
        if not line.startswith("| ") or line.startswith("| class"):
            continue
        name, numbers, codes = (cell.strip() for cell in line.strip("|").split("|"))
        if name:
            found.append([name, numbers, codes])
        else:
            found[-1][2] += " " + codes
    for name, numbers, codes in found:
        yield name, numbers, codes


def table() -> dict[tuple[str, str], tuple[int, int, str]]:
    """(class, code) -> HTTP status, exit, retry; without what comes later."""
    found: dict[tuple[str, str], tuple[int, int, str]] = {}
    last = ""
    for name, numbers, written in rows():
        named = re.findall(r"`(\w+)`", name)
        last = named[0] if named else last
        if name in LATER_ROWS:
            continue
        *statuses, status, exit_code, retry = re.split(r"; |, ", numbers)
        statuses.append(status)
        codes = re.sub(r" \((\d+)\)", r"=\1", written)  # trimmed (410)
        codes = re.sub(r" \([^)]*\)", "", codes)  # facts
        for turn, group in enumerate(codes.split(";")):
            owner, words = last, group
            if match := re.match(r"\s*`(\w+)`: (.*)", group):
                owner, words = match.groups()
            for word in words.split():
                code, _, own = word.partition("=")
                http = own or statuses[min(turn, len(statuses) - 1)]
                if code not in LATER_CODES.get(owner, ()):
                    found[owner, code] = (int(http), int(exit_code), retry)
    return found


def classes() -> dict[str, type[StrandlineError]]:
    every = {name: one for name, one in vars(strandline.errors).items() if isinstance(one, type)}
    return {name: one for name, one in every.items() if issubclass(one, StrandlineError) and one is not StrandlineError}


def test_the_tree_is_the_table() -> None:
    built = {
        (name, code): (error.http_status, error.exit_code, error.retry)
        for name, one in classes().items()
        for code in one.codes
        for error in [one("what is wrong", code=code)]
    }
    assert built == table()


def test_what_comes_later_is_still_in_the_table() -> None:
    names = {name for name, _, _ in rows()}
    assert names >= LATER_ROWS
    listed = " ".join(codes for _, _, codes in rows())
    assert set(listed.replace(";", "").split()) >= set().union(*LATER_CODES.values())


def test_the_classes_are_the_drawn_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+)", strandline.errors.__doc__ or "")
    assert sorted(drawn) == sorted(classes())
    conflicts = {name for name, one in classes().items() if one.__base__ is Conflict}
    assert conflicts == {"SeqNrConflict", "ReadConflict", "LeaseHeld", "LeaseLost"}
    inputs = {name for name, one in classes().items() if one.__base__ is InvalidInput}
    assert inputs == {"InvalidGroup", "InvalidExpression", "GroupIdTaken"}
    groups = {name for name, one in classes().items() if one.__base__ is InvalidGroup}
    assert groups == {"CycleFound", "NotInvertible"}
    assert all(one.__base__ in (StrandlineError, Conflict, InvalidInput, InvalidGroup) for one in classes().values())


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, one in classes().items() for code in one.codes])
def test_every_error(name: str, code: str) -> None:
    error = classes()[name]("what is wrong", code=code, hint="what to do", applied="unknown", seq_nr=7)
    assert error.name == f"{name}.{code}"
    assert error.retryable == (name == "Unavailable")
    assert (str(error), error.message, error.hint, error.applied) == (
        "what is wrong", "what is wrong", "what to do", "unknown",
    )  # fmt: skip
    assert error.seq_nr == 7


# ---------------------------------------------------------------- an error by itself


def test_facts_are_attributes() -> None:
    error = SeqNrConflict("expected 7, head is 9", code="expected", key="order|42", expected=7, actual=9)
    assert (error.key, error.expected, error.actual) == ("order|42", 7, 9)
    assert error.facts == {"key": "order|42", "expected": 7, "actual": 9}
    assert not hasattr(error, "holder")
    with pytest.raises(AttributeError, match="SeqNrConflict has no attribute or fact 'holder'"):
        _ = error.holder


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", classes())
def test_an_error_goes_to_another_process_whole(name: str, again: Any) -> None:
    one = classes()[name]
    error = one("wrong", code=min(one.codes), hint="do", applied="unknown", key="order|😀", seq_nrs=[1, 2])
    found = again(error)
    assert type(found) is one
    assert found is not error
    assert {**vars(found)} == {**vars(error)}
    assert (found.args, found.http_status, found.key) == (error.args, error.http_status, "order|😀")


def test_a_code_is_one_of_its_class() -> None:
    with pytest.raises(ValueError, match="Unavailable has no code 'digest'; known: away "):
        Unavailable("x", code="digest")
    with pytest.raises(ValueError, match="Unavailable has no code ''"):
        Unavailable("x")
    assert strandline.errors.LeaseLost("x").code == "lease_lost"


def test_the_docstring_is_the_message_where_none_is_given() -> None:
    assert str(strandline.errors.LeaseLost()) == "The lease went to somebody else."


def test_defaults() -> None:
    error = SchemaMismatch("x", code="version")
    assert (error.applied, error.hint, error.facts, error.retryable) == ("no", "", {}, False)
    assert (StrandlineError.http_status, StrandlineError.exit_code) == (500, 1)  # what no class says is a bug


# ---------------------------------------------------------------- what an error shows of its input


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain 😀 é", "plain 😀 é"),
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 99 + "…"),
        ("\n" * 60, r"\n" * 49 + "\\…"),
        (7, "7"),
        (b"\xff", r"b'\xff'"),
        (None, "None"),
        ([111] * 50, "[" + "111, " * 19 + "111…"),
        ([10**5000], "<list>"),
    ],
)  # fmt: skip
def test_input_is_shown_escaped_and_short(value: object, text: str) -> None:
    assert shown(value) == text


@given(st.text() | st.binary() | st.integers() | st.lists(st.text()))
def test_nothing_that_is_shown_is_long_or_hidden(value: object) -> None:
    text = shown(value)
    assert len(text) <= 100
    assert text.isprintable()
    text.encode()  # no lone surrogates


def test_invalid_input_has_one_form() -> None:
    error = invalid("limit_range", "limit", "out of range", allowed="1..1000", got=1001, given=1001)
    assert str(error) == "limit: out of range; allowed 1..1000; got 1001"
    assert (error.name, error.field, error.given, error.hint) == (
        "InvalidInput.limit_range", "limit", 1001, "give 1..1000",
    )  # fmt: skip
    assert isinstance(error, InvalidInput)
    assert invalid("option", "o", "w", allowed="a", got=1, hint="do this").hint == "do this"


PACKAGE = ROOT / "src/strandline"
CORE = [PACKAGE / f"{name}.py" for name in "errors fold record rows settings".split()]
CORE += sorted((PACKAGE / "values").glob("*.py"))


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_every_error_of_the_core_has_a_hint(path: Path) -> None:
    made = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes()
    ]
    assert [node.lineno for node in made if not any(word.arg == "hint" for word in node.keywords)] == []
