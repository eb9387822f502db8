"""The machinery of random programs: what it finds, how it makes that smaller, limits, named places."""

from __future__ import annotations

import ast
import importlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

import strandline
from strandline import points
from strandline.backends.memory.log import MemoryLog
from strandline.errors import InvalidInput
from strandline.log.api import ActionDraft, Recorded
from strandline.query.settings import SliceSettings
from strandline.query.tag_settings import TagSettings
from strandline.testing import limits
from strandline.testing.prove import journal, run
from strandline.testing.prove.program import Call, Difference, Program
from strandline.testing.prove.projection_world import POINTS
from strandline.testing.prove.shrink import shrink
from strandline.testing.rare import RARE, counting
from strandline.values.actions import Delete
from tests.acceptance.cli_call import call

SOURCES = Path(strandline.__file__).parent


def test_a_seed_gives_the_same_program_each_time() -> None:
    assert journal.make(7, "sqlite") == journal.make(7, "sqlite")
    assert journal.make(7, "sqlite") != journal.make(8, "sqlite")


def test_a_program_is_printed_and_read_again() -> None:
    program = journal.make(3, "memory")
    assert Program.of_json(program.to_json()) == program


def test_nothing_happens_in_the_middle_of_what_a_run_asks_for_itself() -> None:
    """Else it would compare a query with what was there before somebody carried."""
    asked = ("key", "count", "content", "tags", "expected", "first", "id", "size", "silent")
    point = journal.SEAMS.index("after store.pointers")
    how = dict.fromkeys(("tag", "type", "range", "types", "page", "memory", "from_", "search"))
    calls: list[Call] = [
        ["append", dict.fromkeys(asked)],
        ["meanwhile", {"point": point, "nth": 1, "what": "carry", "key": 0, "limit": None}],
        ["current", how],
    ]
    assert run.difference(Program("queries", "memory", calls, {})) is None


def test_a_wrong_product_is_found_and_the_program_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that forgets every delete: three calls show it, and the printed command shows it again."""
    told = MemoryLog.append

    def forgetful(self: MemoryLog, drafts: Sequence[ActionDraft]) -> list[Recorded]:
        changed = [
            draft._replace(action=draft.action._replace(to=1)) if isinstance(draft.action, Delete) else draft
            for draft in drafts
        ]
        return told(self, changed)

    monkeypatch.setattr(MemoryLog, "append", forgetful)
    proof = run.prove("journal", "memory", range(40))
    assert proof.differing
    failure = min(proof.failures, key=lambda one: len(one.program.calls))
    assert len(failure.program.calls) <= 3
    answer = call("prove", "journal", "--program", failure.program.to_json())
    assert answer.code == 5
    assert failure.message in answer.out


def test_shrinking_keeps_what_matters() -> None:
    calls = [["step", {"number": number, "more": [1, 2, 3]}] for number in range(50)]
    whole = Program("journal", "memory", calls, {"a": 1, "b": 2}, {"c": 1, "d": 2})

    def fails(program: Program) -> bool:
        numbers = [how["number"] for _, how in program.calls]
        return 17 in numbers and 31 in numbers and "b" in program.settings and "c" in program.limits

    small = shrink(whole, fails)
    assert [how["number"] for _, how in small.calls] == [17, 31]
    assert (small.settings, small.limits) == ({"b": 2}, {"c": 1})


def test_a_difference_says_its_kind() -> None:
    assert str(Difference("read", "a shows b", "call 3, append: ")) == "call 3, append: read: a shows b"


def test_every_limit_is_there_and_read_when_it_is_used() -> None:
    """A constant that is the default of a parameter, or that another module imports, would not become small there."""
    for name, constant in limits.CONSTANTS.items():
        attribute = name.rpartition(".")[2]
        for module in constant.modules:
            assert isinstance(getattr(importlib.import_module(f"strandline.{module}"), attribute), (int, float))
    importers: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("strandline."):
                for alias in node.names:
                    name = f"{node.module.removeprefix('strandline.')}.{alias.name}"
                    if name in limits.CONSTANTS and not module.startswith("testing."):
                        importers.setdefault(name, set()).add(module)
            if isinstance(node, ast.arguments):
                defaults = {one.id for one in [*node.defaults, *node.kw_defaults] if isinstance(one, ast.Name)}
                here = {name.rpartition(".")[2] for name, one in limits.CONSTANTS.items() if module in one.modules}
                assert not defaults & here, f"{module}: a default is taken when the function is made"
    for name, modules in importers.items():
        assert modules <= set(limits.CONSTANTS[name].modules), name


def test_limits_are_small_within_and_as_shipped_behind() -> None:
    from strandline.query import look_back

    with pytest.raises(InvalidInput):
        SliceSettings.of({"keys_in_memory_max": 2})
    small = {name: one.small for name, one in limits.LEASTS.items()}
    with limits.small({**small, "query.look_back.STEP": 1}):
        assert vars(look_back)["STEP"] == 1
        assert SliceSettings.of({"keys_in_memory_max": 2}).keys_in_memory_max == 2
        assert TagSettings.of({"keys_in_memory_max": 2}).keys_in_memory_max == 2
    assert vars(look_back)["STEP"] == 500
    for settings in (SliceSettings, TagSettings):
        with pytest.raises(InvalidInput):
            settings.of({"keys_in_memory_max": 2})
    with pytest.raises(ValueError, match="there is no limit"), limits.small({"query.nothing": 1}):
        pass


def test_places_are_counted_within_and_cost_nothing_behind() -> None:
    with counting() as reached:
        points.reached("somewhere")
        points.reached("somewhere")
    points.reached("somewhere")
    assert reached == {"somewhere": 2}
    assert points.told is None


def test_the_command_shows_a_table() -> None:
    answer = call("prove", "journal", "--seeds", "5", "--on", "memory,last-write-wins")
    assert (answer.code, answer.err) == (0, "")
    head, *rows, last = answer.out.splitlines()
    assert head.split() == ["part", "on", "seeds", "programs", "calls", "rare", "paths", "differences", "time"]
    assert [row.split()[:4] for row in rows] == [
        ["journal", "memory", "0..4", "5"], ["journal", "last-write-wins", "0..4", "5"],
    ]  # fmt: skip
    assert last.endswith(f"of {len(RARE)} rare paths reached")


def test_all_parts_run_for_a_time_and_what_was_run_is_kept(tmp_path: Path) -> None:
    """Each part has a turn on each back-end that it has, from the seed on that was given."""
    kept = tmp_path / "proof.json"
    answer = call("prove", "all", "--minutes", "0.01", "--first", "7", "--on", "memory,sqlite", "--json", str(kept))
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(kept.read_bytes())
    runs = found["runs"]
    assert [(one["part"], one["on"]) for one in runs] == [
        (part, on) for part in run.PARTS for on in ("memory", "sqlite") if on in run.BACKENDS[part]
    ]
    assert {(one["part"], one["on"]) for one in runs} >= {("work", "sqlite"), ("journal", "memory")}
    for one in runs:
        assert (one["first_seed"], one["next_seed"] - one["programs"]) == (7, 7)
        assert one["calls"]
        assert one["programs"] >= 1
    assert found["programs"] == sum(one["programs"] for one in runs)
    assert found["calls"] == sum(sum(one["calls"].values()) for one in runs)
    assert found["differences"] == 0
    assert set(found["versions"]) == {"strandline", "python", "sqlite"}
    reached = {name for one in runs for name in one["rare_paths"]}
    assert found["rare_paths_never_reached"] == [name for name in RARE if name not in reached]
    assert [path.name for path in tmp_path.iterdir()] == ["proof.json"]


def test_a_run_of_some_seeds_ends_with_its_time() -> None:
    """A time given beside a number is the most that it may take: this many programs would take a day."""
    proofs = run.prove_in_turn([("journal", "memory"), ("work", "sqlite")], programs=10**6, seconds=0.5)
    assert all(1 <= proof.programs < 1000 for proof in proofs)


def test_turns_add_up_to_every_seed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    make = journal.make

    def made(seed: int, on: str) -> Program:
        seeds.append(seed)
        return make(seed, on)

    monkeypatch.setattr(run, "TURN_S", 0.0)
    monkeypatch.setattr(journal, "make", made)
    turns: list[int] = []
    pairs = [("journal", "memory"), ("work", "sqlite")]
    proofs = run.prove_in_turn(
        pairs, first=3, programs=4, seconds=600, turned=lambda found: turns.append(found[0].programs)
    )
    assert seeds == [3, 4, 5, 6]
    assert [proof.programs for proof in proofs] == [4, 4]
    assert turns[:4] == [1, 1, 2, 2]


def test_a_run_stops_where_it_is_told_to() -> None:
    done: list[str] = []
    proofs = run.prove_in_turn(
        [("journal", "memory")],
        told=lambda proof: done.append(proof.part),
        stopped=lambda: len(done) >= 2,
    )
    assert proofs[0].programs == 2


def test_a_rare_path_that_is_not_reached_fails_a_run_that_asks_for_all() -> None:
    answer = call("prove", "journal", "--seeds", "1", "--on", "memory", "--every-path")
    assert answer.code == 5
    assert "work.stale_add" in answer.out.splitlines()[-1]


def test_the_command_leaves_the_loggers_of_its_process_alone() -> None:
    """Programs run without a log; whoever calls the command in a process of their own hears the package afterwards."""
    logger = logging.getLogger("strandline")
    before = logger.level
    assert call("prove", "journal", "--seeds", "1", "--on", "memory").code == 0
    assert call("prove", "journal", "--on", "paper").code == 2
    assert logger.level == before


@pytest.mark.parametrize(
    "argv",
    [
        ("prove", "nothing"),
        ("prove", "journal", "--on", "paper"),
        ("prove", "journal", "--program", "{}"),
        ("prove", "work", "--on", "last-write-wins"),
        ("prove", "journal", "--minutes", "0"),
        ("prove", "journal", "--seeds", "0"),
        ("prove", "journal", "--json", "/nowhere/at/all"),
    ],
)
def test_bad_input_is_refused(argv: tuple[str, ...]) -> None:
    answer = call(*argv)
    assert answer.code == 2
    assert answer.err.startswith("error: ")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("point", ["before store.pointers", "after store.pointers"])
def test_hosts_of_a_process_do_not_wait_for_each_other_in_one_thread(point: str) -> None:
    """One host looks at the pointers when another one of its process is to run."""
    append = {
        "key": 0,
        "count": 2,
        "content": None,
        "tags": None,
        "expected": None,
        "first": None,
        "id": None,
        "size": None,
    }
    calls: list[Call] = [["append", {**append, "silent": False}], ["host", {"slot": 0}], ["host", {"slot": 1}]]
    meanwhile = {"point": POINTS.index(point), "nth": 1, "what": "pump", "key": 0, "limit": None}
    program = Program("projections", "sqlite", [*calls, ["meanwhile", meanwhile], ["pump", {"rounds": 2}]], {}, {})
    assert run.difference(program) is None
