"""The options that every command takes: where the journal is, settings, and how to answer.

The command line overrides the configuration file, which overrides `STRANDLINE_URL`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.arguments import pairs
from strandline.cli.masking import masked, remember
from strandline.cli.output import emit, printable, say
from strandline.errors import InvalidInput, shown, unknown
from strandline.settings import Settings, number_in, parse_setting

if TYPE_CHECKING:
    from strandline.connect import Strandline

URL_VARIABLE = "STRANDLINE_URL"
PLACES = ("url", "log", "store", "work", "projections")
WHERE = {"url", "log", "store"}
"""The places that say where the journal is."""
CONFIG_BYTES_MAX = 2**20
_PANEL = "Where, and how to answer"


def _option(kind: Any, default: Any, name: str, metavar: str | None, help_: str) -> tuple[Any, Any]:
    option = typer.Option(name, metavar=metavar, help=help_, rich_help_panel=_PANEL, show_default=False)
    return Annotated[kind, option], default


COMMON = {
    "url": _option(str | None, None, "--url", "URL", f"The journal, e.g. sqlite:orders; else {URL_VARIABLE}."),
    "log": _option(str | None, None, "--log", "URL", "The action log alone; needs --store."),
    "store": _option(str | None, None, "--store", "URL", "The journal store alone; needs --log."),
    "work": _option(str | None, None, "--work", "URL", "Where work journals are, if not there."),
    "projections": _option(str | None, None, "--projections", "URL", "Where offsets of projections are, if not there."),
    "config": _option(str | None, None, "--config", "FILE", "TOML: the URLs, and settings, by name."),
    "set": _option(list[str] | None, None, "--set", "NAME=VALUE", "One setting, e.g. read_page=100."),
    "json": _option(bool, False, "--json", None, "Answer with JSON lines."),
}


@dataclass(frozen=True, slots=True)
class Options:
    """The common options, checked."""

    places: dict[str, str] = field(default_factory=dict)
    """Some of url, log, store, work, projections."""
    settings: dict[str, Any] = field(default_factory=dict)
    json: bool = False
    group: dict[str, Any] = field(default_factory=dict)
    """What is said of event groups: stream, targets, and settings of theirs."""

    @classmethod
    def of(cls, given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Options:
        """Return options from the command line, the file that it names, and the environment."""
        places = {name: given[name] for name in PLACES if given.get(name) is not None}
        settings = {}
        if given.get("config") is not None:
            written = _read_config(Path(given["config"]))
            in_file = {name: written.pop(name) for name in PLACES if name in written}
            places = places if WHERE & places.keys() else {**in_file, **places}
            remember(map(str, in_file.values()))
            settings = written
        group = settings.pop("group", {})
        for name, text in pairs(given.get("set"), "--set", code="setting").items():
            kind, _, own = name.rpartition("group.")
            if own and not kind and name.startswith("group."):
                group[own] = number_in(text)
            else:
                settings[name] = parse_setting(name, text)
        if not WHERE & places.keys() and environ.get(URL_VARIABLE):
            places["url"] = environ[URL_VARIABLE]
        Settings.of(settings)
        return cls(places, settings, bool(given.get("json")), group)

    def tell(self, answer: Any, line: str) -> None:
        """Print an answer, as JSON for programs or as a line for people."""
        emit(answer) if self.json else say(printable(line))

    def command(self, words: str) -> str:
        """Return a command for the user to type next, with the URLs of this one."""
        places = "".join(f" --{name} {masked(place)}" for name, place in self.places.items())
        return f"`strandline {words}{places}`"

    def target(self) -> dict[str, Any]:
        """Return `url=`, or `log=` and `store=`, for a call that takes them; `InvalidInput.url_incomplete` without."""
        if not self.places:
            raise InvalidInput(
                "--url: missing; allowed a URL, e.g. sqlite:FOLDER",
                code="url_incomplete",
                hint=f"give --url sqlite:FOLDER, or set {URL_VARIABLE}",
                field="--url",
            )
        if "url" in self.places and {"log", "store"} & self.places.keys():
            raise InvalidInput(
                "--url: given together with --log or --store; allowed --url, or --log and --store",
                code="url_incomplete",
                hint="leave one of them out",
                field="--url",
            )
        for name, other in (("log", "store"), ("store", "log"), ("work", "url"), ("projections", "url")):
            if name in self.places and other not in self.places and not (other == "url" and "log" in self.places):
                raise InvalidInput(
                    f"--{other}: missing; allowed --url, or --log and --store",
                    code="url_incomplete",
                    hint=f"give --{other} too",
                    field=f"--{other}",
                )
        return dict(self.places)

    def connect(self, *, create: bool = False) -> Strandline:
        """Open the journal. Commands that only read do not create one, so that a mistyped folder stays absent."""
        from strandline.connect import connect

        schema = {} if create else {"schema": "check"}
        return connect(**self.target(), **{**schema, **self.settings})


def with_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a command that takes the common options beside its own, and gets them as its first argument."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in COMMON.items()
    ]
    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *common]

    def command(**given: Any) -> int | None:
        options = Options.of({name: given.pop(name) for name in COMMON})
        return function(options, **given)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _read_config(path: Path) -> dict[str, Any]:
    import tomllib

    refused = f"--config {shown(str(path))}"
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(
            f"{refused}: cannot be read ({error.strerror})", code="option", hint="give a file that you can read"
        ) from None
    if len(text) > CONFIG_BYTES_MAX:
        raise InvalidInput(f"{refused}: over {CONFIG_BYTES_MAX} bytes", code="option", hint="give a shorter file")
    try:
        written = tomllib.loads(text.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{refused}: not UTF-8 at byte {error.start}", code="invalid_unicode", hint="write it in UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(
            f"{refused}: not TOML: {error}", code="option", hint='write lines like url = "sqlite:orders"'
        ) from None
    known = {*PLACES, "group", *(setting.name for setting in fields(Settings))}
    for name, value in written.items():
        if name not in known:
            raise unknown("configuration key", name, known, code="setting")
        if name in PLACES and not isinstance(value, str):
            raise InvalidInput(
                f"{name}: not text; allowed a URL; got {shown(value)}", code="setting", hint="write it in quotes"
            )
    return written
