"""Compares the statements of docs/spec with the tests that name them.

A statement has an id (J12). A test names what it proves with `@pytest.mark.req("J12")`, on a function, a class, a
parameter, or as `pytestmark`. This tool reads both without running anything, and lists statements without a test,
statements that come later (docs/spec/later.toml), and marks that name no statement.

Exit 1: a mark or a row of later.toml is wrong; with --strict also: a statement that is due has no test.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ID = re.compile(r"([A-Z]{1,2})(\d+)")
WITHDRAWN = re.compile(r"^- \*{0,2}[A-Z]{1,2}\d+\*{0,2} withdrawn.*$", re.MULTILINE)
STATEMENTS = (
    re.compile(r"\b([A-Z]{1,2}\d+)\b\*{0,2} \[(?:seed|implied|ours)"),  # with its tag, anywhere in a line
    re.compile(r"^- \*{0,2}([A-Z]{1,2}\d+)\b", re.MULTILINE),  # at the start of a list item
    re.compile(r"(?<=[.;] )([UD]\d+)(?= (?:`|log:))"),  # further ones in a list item, without a tag
)
# Shipped contract suites are tests too: each back-end's test class inherits them.
TEST_FOLDERS = ("tests", "src/strandline/testing")


def statements(spec: Path) -> dict[str, set[str]]:
    """Ids by file of the specification, without the withdrawn ones."""
    found = {}
    for file in sorted(spec.glob("*.md")):
        text = WITHDRAWN.sub("", file.read_text(encoding="utf-8"))
        if ids := {id_ for pattern in STATEMENTS for id_ in pattern.findall(text)}:
            found[file.name] = ids
    return found


def later(spec: Path, known: set[str]) -> tuple[dict[str, str], list[str]]:
    """Reason by id, and the rows that name no statement."""
    file = spec / "later.toml"
    rows: dict[str, str] = tomllib.loads(file.read_text(encoding="utf-8"))["later"] if file.exists() else {}
    reasons, problems = {}, []
    for row, reason in rows.items():
        ids = {id_ for id_ in known if _covers(row, id_)}
        if not ids:
            problems.append(f"later.toml: {row} names no statement")
        reasons.update(dict.fromkeys(ids, reason))
    return reasons, problems


def _covers(row: str, id_: str) -> bool:
    prefix, number = _parts(id_)
    if row == prefix:
        return True
    first, _, last = row.partition("-")
    if not (ID.fullmatch(first) and ID.fullmatch(last or first)):
        return False
    return _parts(first) <= (prefix, number) <= _parts(last or first)


def marks(root: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Places by id, and the marks that prove nothing because of how they are written."""
    places: dict[str, list[str]] = defaultdict(list)
    problems = []
    for file in sorted(path for folder in TEST_FOLDERS for path in (root / folder).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        name = file.relative_to(root).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_req(node.func):
                place = f"{name}:{node.lineno}"
                ids = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                if not ids or len(ids) != len(node.args) or node.keywords:
                    problems.append(f"{place}: give ids as plain texts, req({', '.join(map(ast.unparse, node.args))})")
                for id_ in ids:
                    places[id_].append(place)
            elif (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and not node.name.startswith("test")
                and any(isinstance(mark, ast.Call) and _is_req(mark.func) for mark in node.decorator_list)
            ):
                problems.append(f"{name}:{node.lineno}: {node.name} is no test, its mark counts for nothing")
    return places, problems


def _is_req(func: ast.expr) -> bool:
    return (
        isinstance(func, ast.Attribute) and func.attr == "req" and ast.unparse(func.value).rpartition(".")[2] == "mark"
    )


def _parts(id_: str) -> tuple[str, int]:
    match = ID.fullmatch(id_)
    return (match[1], int(match[2])) if match else (id_, 0)


def compact(ids: Iterable[str]) -> str:
    """Sorted ids, runs of neighbours drawn together: J1-J3 J7."""
    return " ".join(_runs(sorted(map(_parts, ids))))


def _runs(parts: list[tuple[str, int]]) -> Iterator[str]:
    start = 0
    for end, (prefix, number) in enumerate(parts, 1):
        if end < len(parts) and parts[end] == (prefix, number + 1):
            continue
        first, last = f"{prefix}{parts[start][1]}", f"{prefix}{number}"
        yield first if first == last else f"{first}-{last}"
        start = end


def show(title: str, rows: list[str]) -> None:
    if rows:
        print("\n".join([title, *(f"  {row}" for row in rows)]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the statements of docs/spec with the tests that name them.")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a statement that is due has no test")
    parser.add_argument("--brief", action="store_true", help="print the summary and what is wrong, no lists")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the repository")
    options = parser.parse_args()

    by_file = statements(options.root / "docs/spec")
    known = set().union(*by_file.values())
    reasons, problems = later(options.root / "docs/spec", known)
    places, wrong_marks = marks(options.root)
    problems += wrong_marks
    problems += [f"{place}: {id_} is no statement" for id_ in sorted(set(places) - known) for place in places[id_]]
    tested = known & set(places)
    missing = known - tested - set(reasons)

    print(
        f"Conformance: {len(tested)} of {len(known)} statements have a test, {len(missing)} that are due have none, "
        f"{len(set(reasons) - tested)} come later"
    )
    show("Wrong marks", problems)
    if not options.brief:
        due = [f"{file}: {compact(ids & missing)}" for file, ids in by_file.items() if ids & missing]
        show("Without a test", due)
        by_reason = defaultdict(set)
        for id_ in set(reasons) - tested:
            by_reason[reasons[id_]].add(id_)
        show("Later", sorted(f"{reason}: {compact(ids)}" for reason, ids in by_reason.items()))
        if done := tested & set(reasons):
            show("In later.toml, although a test names them", [compact(done)])
    return 1 if problems or (options.strict and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
