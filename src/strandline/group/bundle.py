"""Bundles: code of handlers with all that it needs, in one file whose digest is its name.

A bundle is a zip of Python modules and installed distributions. Its handlers are the entry points `strandline.handlers`
of these. Packing executes nothing of what it packs and gives the same bytes for the same input; opening one checks
nothing but its digest, and fetches nothing: what is not in it is not there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidInput, NotFound, Unsupported, invalid, text_of
from strandline.group.core.names import NAMES, is_name

ENTRY_POINTS: Final = "strandline.handlers"
BYTES_MAX: Final = 2**28
UNPACKED_MAX: Final = 2**30
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
"""Of installed distributions: they tell of the machine."""
_OWN: Final = "strandline_bundle-1.dist-info"


# ---------------------------------------------------------------- pack


def pack(modules: Sequence[str], handlers: Mapping[str, str], lock: Path | None) -> bytes:
    """A bundle of the user's own modules and of the distributions of a lock file: requirements with their hashes.

    `handlers` are names to MODULE:OBJECT; distributions may bring handlers of their own.
    """
    files: dict[str, bytes] = {}
    with TemporaryDirectory(prefix="strandline-pack-") as folder:
        if lock is not None:
            _install(lock, Path(folder))
            files |= _files(Path(folder), Path(folder))
    for module in modules:
        files |= _module(module)
    if handlers:
        files |= _declared(handlers, files)
    if not any(name.endswith(".dist-info/entry_points.txt") for name in files):
        raise invalid("option", "handlers", "none", allowed="--handler NAME=MODULE:OBJECT", got=list(modules))
    return _zipped(files)


def _install(lock: Path, folder: Path) -> None:
    """What `pip install --require-hashes` gives; wheels alone, so that nothing of it is executed."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile",
        "--require-hashes", "--only-binary", ":all:", "--target", str(folder), "--requirement", str(lock),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (no shell; the file is the caller's)
    if "No module named pip" in done.stderr:
        raise Unsupported("pip is not installed here", code="not_installed", hint="python -m ensurepip")
    if done.returncode:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise InvalidInput(
            f"--lock {lock}: {said[:1000] or 'pip failed'}",
            code="option",
            hint="give requirements with all their hashes, as `pip-compile --generate-hashes` or `uv pip compile "
            "--generate-hashes` write them",
            field="--lock",
        )


def _module(name: str) -> dict[str, bytes]:
    allowed = "the name of a module or package of Python files that can be found from here"
    spec = importlib.util.find_spec(name) if is_name(name) else None
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        raise invalid("option", "MODULE", "not found", allowed=allowed, got=name)
    origin = Path(str(spec.origin))
    if spec.submodule_search_locations is None:
        return {origin.name: origin.read_bytes()}
    return _files(origin.parent, origin.parent.parent)


def _files(folder: Path, root: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(root).as_posix()
        installed = path.parent.name.endswith(".dist-info") and path.name in _LEFT_OUT
        if path.is_file() and "__pycache__" not in path.parts and not installed and not name.startswith("bin/"):
            found[name] = path.read_bytes()
    return found


def _declared(handlers: Mapping[str, str], files: Mapping[str, bytes]) -> dict[str, bytes]:
    paths = [PurePosixPath(name) for name in files]
    tops = {path.parts[0].removesuffix(".py") for path in paths}
    known = {path.with_name(path.name.partition(".")[0] or path.name) for path in paths}  # y.py, y.cpython-311-….so: y
    known.update(folder for path in paths for folder in path.parents)
    lines = [f"[{ENTRY_POINTS}]"]
    for name, place in sorted(handlers.items()):
        module, _, object_ = place.partition(":")
        if not is_name(name) or not object_ or not all(map(is_name, (*module.split("."), *object_.split(".")))):
            allowed = f"NAME=MODULE:OBJECT; a NAME: {NAMES}"
            raise invalid("option", "--handler", "cannot be one", allowed=allowed, got=f"{name}={place}")
        if PurePosixPath(*module.split(".")) not in known:
            allowed = f"modules of {' '.join(sorted(tops))}"
            raise invalid("option", "--handler", "not in the bundle", allowed=allowed, got=module)
        lines.append(f"{name} = {place}")
    about = "Metadata-Version: 2.1\nName: strandline-bundle\nVersion: 1\n"
    texts = {"METADATA": about, "entry_points.txt": "\n".join(lines) + "\n"}
    return {f"{_OWN}/{name}": text.encode() for name, text in texts.items()}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """The same bytes for the same files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            zipped.writestr(info, files[name])
    return made.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------- open


class Bundle(NamedTuple):
    """A bundle whose code is loaded into this process."""

    sha256: str
    handlers: dict[str, Callable[[Any], Any]]


@contextmanager
def opened(path: Path, sha256: str | None = None) -> Iterator[Bundle]:
    """Load the handlers of a bundle: this executes its code, here. `sha256`: refused if it has another digest."""
    data = _read(path)
    found = digest(data)
    if sha256 is not None and sha256 != found:
        raise invalid("option", "sha256", f"{path} has another digest", allowed=sha256, got=found)
    with TemporaryDirectory(prefix="strandline-bundle-") as folder:
        _unpack(data, path, Path(folder))
        sys.path.insert(0, folder)
        try:
            yield Bundle(found, _handlers(folder, path))
        finally:
            sys.path.remove(folder)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise NotFound(
            f"{path}: cannot be read ({error.strerror})", code="bundle", hint="give a file of `strandline group pack`"
        ) from None
    if len(data) > BYTES_MAX:
        raise invalid("option", "BUNDLE", "too large", allowed=f"at most {BYTES_MAX:,} bytes", got=str(path))
    return data


def _unpack(data: bytes, path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            names = [PurePosixPath(info.filename) for info in zipped.infolist()]
            size = sum(info.file_size for info in zipped.infolist())
            if size > UNPACKED_MAX or any(name.is_absolute() or ".." in name.parts for name in names):
                raise zipfile.BadZipFile("names that lead out of it, or too much in it")
            zipped.extractall(folder)
    except (zipfile.BadZipFile, OSError) as error:
        raise NotFound(
            f"{path} is no bundle: {text_of(error)}", code="bundle", hint="give a file of `strandline group pack`"
        ) from None


def _handlers(folder: str, path: Path) -> dict[str, Callable[[Any], Any]]:
    found: dict[str, Callable[[Any], Any]] = {}
    for distribution in importlib.metadata.distributions(path=[folder]):
        for entry in distribution.entry_points.select(group=ENTRY_POINTS):
            try:
                found[entry.name] = entry.load()
            except Exception as error:
                raise NotFound(
                    f"{path}: handler {entry.name} ({entry.value}) cannot be loaded: {type(error).__name__}: "
                    f"{text_of(error)}",
                    code="handler",
                    hint="pack what it needs, too (--lock)",
                ) from error
    if not found:
        raise NotFound(
            f"{path} has no handlers: no entry points {ENTRY_POINTS}",
            code="handler",
            hint="pack it with --handler NAME=MODULE:OBJECT",
        )
    return found
