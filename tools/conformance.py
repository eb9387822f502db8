"""Compares the statements of docs/spec with the tests that name them.

A statement has an id (J12). A test names what it proves with `@pytest.mark.req("J12")`, on a function, a class, a
parameter, or as `pytestmark`. This tool reads both without running anything, and lists statements without a test,
statements that come later (docs/spec/later.toml), and marks that name no statement. What is marked `soak` is left out
of `make test`, so a statement that only such tests name has no test.

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
    re.compile(r"[.;:]\s+(S\d+)(?=\s)"),  # scenarios, several in a list item
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


def marks(root: Path) -> tuple[dict[str, list[str]], set[str], list[str]]:
    """Places by id, the ids that a test outside of the soak names, and marks that prove nothing as they are written."""
    places: dict[str, list[str]] = defaultdict(list)
    tested, problems = set(), []
    for file in sorted(path for folder in TEST_FOLDERS for path in (root / folder).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        name = file.relative_to(root).as_posix()
        for node, soaked in _walk(tree):
            if isinstance(node, ast.Call) and _is_mark(node.func, "req"):
                place = f"{name}:{node.lineno}"
                ids = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                if not ids or len(ids) != len(node.args) or node.keywords:
                    problems.append(f"{place}: give ids as plain texts, req({', '.join(map(ast.unparse, node.args))})")
                for id_ in ids:
                    places[id_].append(place)
                tested |= set() if soaked else set(ids)
            elif (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and not node.name.startswith("test")
                and any(isinstance(mark, ast.Call) and _is_mark(mark.func, "req") for mark in node.decorator_list)
            ):
                problems.append(f"{name}:{node.lineno}: {node.name} is no test, its mark counts for nothing")
    return places, tested, problems


def _is_mark(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value).rpartition(".")[2] == "mark"
    )


def _walk(node: ast.AST, soaked: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, and whether all tests that each belongs to are the soak's."""
    soaked = soaked or _is_soaked(node)
    yield node, soaked
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, soaked)


def _is_soaked(node: ast.AST) -> bool:
    """Whether this is left out of `make test`, by a mark of its own or because all tests in it are."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(_has_soak(mark) for mark in node.decorator_list if not _is_parametrize(mark))
    if isinstance(node, ast.Call):  # a parameter
        return any(keyword.arg == "marks" and _has_soak(keyword.value) for keyword in node.keywords)
    if isinstance(node, ast.Module | ast.ClassDef):
        given = [
            assigned.value for assigned in node.body if isinstance(assigned, ast.Assign) and _is_pytestmark(assigned)
        ]
        given += node.decorator_list if isinstance(node, ast.ClassDef) else []
        inside = [child for child in node.body if _is_test(child)]
        return any(map(_has_soak, given)) or (bool(inside) and all(map(_is_soaked, inside)))
    return False


def _is_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _is_parametrize(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and _is_mark(mark.func, "parametrize")


def _has_soak(node: ast.AST) -> bool:
    return any(_is_mark(child, "soak") for child in ast.walk(node))


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
    places, outside_the_soak, wrong_marks = marks(options.root)
    problems += wrong_marks
    problems += [f"{place}: {id_} is no statement" for id_ in sorted(set(places) - known) for place in places[id_]]
    tested = known & outside_the_soak
    missing = known - tested - set(reasons)

    print(
        f"Conformance: {len(tested)} of {len(known)} statements have a test, {len(missing)} that are due have none, "
        f"{len(set(reasons) - tested)} come later"
    )
    show("Wrong marks", problems)
    if not options.brief:
        due = [f"{file}: {compact(ids & missing)}" for file, ids in by_file.items() if ids & missing]
        show("Without a test", due)
        if only := missing & set(places):
            show("Only in the soak", [compact(only)])
        by_reason = defaultdict(set)
        for id_ in set(reasons) - tested:
            by_reason[reasons[id_]].add(id_)
        show("Later", sorted(f"{reason}: {compact(ids)}" for reason, ids in by_reason.items()))
        if done := tested & set(reasons):
            show("In later.toml, although a test names them", [compact(done)])
    return 1 if problems or (options.strict and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
