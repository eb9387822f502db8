"""What must not stand in the sources: found by reading them, not by running them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SHIPPED_FOR_TESTS = "src/strandline/testing/"


@cache
def calls_and_imports() -> list[tuple[str, ast.AST]]:
    """What these tests look at; all sources are read once."""
    assert len(SOURCES) > 50
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.Import | ast.ImportFrom | ast.Assert)
    ]


def nodes(*, testing: bool = True) -> Iterator[tuple[str, ast.AST]]:
    for where, node in calls_and_imports():
        if testing or not where.startswith(SHIPPED_FOR_TESTS):
            yield where, node


@pytest.mark.req("D9")
def test_nothing_from_outside_is_run_or_unpickled() -> None:
    # Text made of column numbers alone; a nameless file that only the process which wrote it has open.
    known = {"src/strandline/store/tables.py": "exec", "src/strandline/journal/replay.py": "marshal"}
    modules, calls = {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle"}, {"eval", "exec", "compile"}
    found = []
    for where, node in nodes():
        if isinstance(node, ast.Import):
            found += [(where, name.name) for name in node.names if name.name.partition(".")[0] in modules]
        elif isinstance(node, ast.ImportFrom):
            found += [(where, name) for name in [node.module or ""] if name.partition(".")[0] in modules]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls:
            found.append((where, node.func.id))
    assert {where.partition(":")[0]: name for where, name in found} == known
    assert len(found) == len(known)


def test_sql_is_never_glued_together() -> None:
    """Statements come from files; what a program knows only at run time goes in as a parameter."""
    glued = (ast.JoinedStr, ast.BinOp)
    found = [
        where
        for where, node in nodes(testing=False)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("execute", "executemany")
        and node.args
        and isinstance(node.args[0], glued)
    ]
    assert found == []


@pytest.mark.req("D6")
def test_no_text_reaches_a_function_of_spark_that_runs_it() -> None:
    """`where` and `filter` take conditions of columns; those of pyarrow take an array of booleans."""
    arrays = {
        ("selection.py", "mask"), ("selection.py", "found"), ("archive.py", "_chosen"), ("sweeping.py", "pa.array"),
    }  # fmt: skip
    found = []
    for where, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("expr", "selectExpr", "sql"):
                found.append(where)
            elif node.func.attr in ("where", "filter"):
                file = Path(where.partition(":")[0]).name
                found += [
                    where
                    for given in node.args
                    if not isinstance(given, ast.Compare | ast.BinOp)
                    and (file, ast.unparse(given.func if isinstance(given, ast.Call) else given)) not in arrays
                ]
    assert found == []


@pytest.mark.req("RS9")
def test_no_check_of_the_product_rests_on_assert() -> None:
    assert [where for where, node in nodes(testing=False) if isinstance(node, ast.Assert)] == []


@pytest.mark.soak
@pytest.mark.req("RS9")
@pytest.mark.timeout(600)
def test_the_contract_suites_pass_without_asserts() -> None:
    """pytest keeps the asserts of tests alive by itself; those of anything else are gone under -O."""
    program = [
        sys.executable, "-O", "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider",
        "-W", "ignore::pytest.PytestConfigWarning", "tests/contract",
        "-k", "not Postgres and not Kafka and not Cassandra",  # a second set of servers would show nothing more
    ]  # fmt: skip
    answer = subprocess.run(program, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-3000:]
    assert " passed" in answer.stdout
