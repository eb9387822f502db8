"""The conformance tool, run as a user runs it, on small trees made for each test."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = """
- J1 [ours] One. J2 [seed] Two.
- J3 withdrawn: see J1.
- U1 `Unsupported.a`: three. U2 `Unsupported.b`: four.
- RP1 [seed] Five.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs/spec").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs/spec/some.md").write_text(SPEC)
    (tmp_path / "docs/spec/later.toml").write_text('[later]\nRP = "projections"\n')
    return tmp_path


def conformance(tree: Path, *arguments: str) -> tuple[int, str]:
    tool = [sys.executable, str(ROOT / "tools/conformance.py"), "--root", str(tree), *arguments]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def write_test(tree: Path, text: str) -> None:
    (tree / "tests/test_it.py").write_text(f"import pytest\n\n{text}\n")


def test_lists_what_has_no_test_and_what_comes_later(tree: Path) -> None:
    code, out = conformance(tree)
    assert code == 0
    assert "0 of 5 statements have a test, 4 that are due have none, 1 come later" in out
    assert "some.md: J1-J2 U1-U2" in out
    assert "projections: RP1" in out
    assert conformance(tree, "--strict")[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.req("J1", "J2", "U1", "U2")\ndef test_it() -> None: ...',
        '@pytest.mark.req("J1", "J2", "U1", "U2")\nclass TestIt: ...',
        'pytestmark = pytest.mark.req("J1", "J2", "U1", "U2")',
        'pytestmark = [pytest.mark.spark, pytest.mark.req("J1", "J2", "U1", "U2")]',
    ],
)
def test_finds_marks_wherever_pytest_does(tree: Path, text: str) -> None:
    write_test(tree, text)
    code, out = conformance(tree, "--strict")
    assert code == 0, out
    assert "4 of 5 statements have a test, 0 that are due have none, 1 come later" in out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('@pytest.mark.req("J9")\ndef test_it() -> None: ...', "tests/test_it.py:3: J9 is no statement"),
        ('@pytest.mark.req("J3")\ndef test_it() -> None: ...', "J3 is no statement"),
        ("@pytest.mark.req()\ndef test_it() -> None: ...", "give ids as plain texts"),
        ('ID = "J1"\n@pytest.mark.req(ID)\ndef test_it() -> None: ...', "give ids as plain texts"),
        ('@pytest.mark.req("J1")\ndef helper() -> None: ...', "helper is no test"),
    ],
)
def test_wrong_marks_fail(tree: Path, text: str, complaint: str) -> None:
    write_test(tree, text)
    code, out = conformance(tree, "--brief")
    assert code == 1
    assert complaint in out


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.soak\n@pytest.mark.req("J1")\ndef test_it() -> None: ...',
        '@pytest.mark.soak\nclass TestIt:\n    @pytest.mark.req("J1")\n    def test_it(self) -> None: ...',
        '@pytest.mark.req("J1")\nclass TestIt:\n    @pytest.mark.soak\n    def test_it(self) -> None: ...',
        'pytestmark = [pytest.mark.soak]\n\n@pytest.mark.req("J1")\ndef test_it() -> None: ...',
        'ALL = [1, pytest.param(2, marks=[pytest.mark.soak, pytest.mark.req("J1")])]',
        '@pytest.mark.soak(reason="long")\n@pytest.mark.req("J1")\ndef test_it() -> None: ...',
    ],
)
def test_a_statement_that_only_the_soak_tests_has_no_test(tree: Path, text: str) -> None:
    write_test(tree, text)
    code, out = conformance(tree, "--strict")
    assert code == 1
    assert "0 of 5 statements have a test, 4 that are due have none" in out
    assert "Only in the soak\n  J1" in out


@pytest.mark.parametrize(
    "text",
    [
        (
            '@pytest.mark.soak\n@pytest.mark.req("J1")\ndef test_a() -> None: ...\n'
            '@pytest.mark.req("J1")\ndef test_b() -> None: ...'
        ),
        (
            '@pytest.mark.req("J1")\n@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.soak)])\n'
            "def test_it(n: int) -> None: ..."
        ),
        (
            '@pytest.mark.req("J1")\nclass TestIt:\n    @pytest.mark.soak\n    def test_a(self) -> None: ...\n'
            "    def test_b(self) -> None: ..."
        ),
    ],
)
def test_one_test_outside_of_the_soak_is_enough(tree: Path, text: str) -> None:
    write_test(tree, text)
    _, out = conformance(tree)
    assert "1 of 5 statements have a test" in out
    assert "Only in the soak" not in out


def test_a_row_of_later_that_names_nothing_fails(tree: Path) -> None:
    (tree / "docs/spec/later.toml").write_text('[later]\n"J7-J8" = "gone"\n')
    code, out = conformance(tree)
    assert code == 1
    assert "J7-J8 names no statement" in out


def test_the_specification_has_as_many_statements_as_its_index_says() -> None:
    _, out = conformance(ROOT)
    index = (ROOT / "docs" / "spec" / "README.md").read_text(encoding="utf-8")
    named = {path.name for path in (ROOT / "docs" / "spec").glob("*.md")}
    counted, here = 0, False
    for file, counts in re.findall(r"^\| (?:`(\w+\.md)`)? ?\| [^|]* \| ([^|]*\(\d+\)[^|]*) \|$", index, re.MULTILINE):
        here = file in named if file else here  # a row without a name goes on with the file above it
        counted += here * sum(map(int, re.findall(r"\((\d+)\)", counts)))
    assert f"of {counted} statements" in out


def test_each_scenario_of_a_paragraph_counts(tree: Path) -> None:
    (tree / "docs/spec/some.md").write_text("- S1 one: as S9, or S8. S2\n  two. S3 three: S7.\n\nIn S4, too.\n")
    (tree / "docs/spec/later.toml").unlink()
    write_test(tree, '@pytest.mark.req("S2")\ndef test_it() -> None: ...')
    code, out = conformance(tree, "--strict")
    assert (code, "1 of 3 statements have a test, 2 that are due have none" in out) == (1, True)
    assert "some.md: S1 S3" in out
