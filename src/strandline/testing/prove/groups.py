"""Programs of event groups: random graphs of steps over two databases, handlers that answer, fail or write themselves,
others who write between groups and steps, kills at named points, new processes, cancels.

A group is executed by the product, and one after the other by the model (`group_model`). At the end of each run of a
processor every group must have ended as it did there, step by step, and all tables must hold the same rows.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from copy import deepcopy
from typing import Any, Final

from strandline.clock import now_us
from strandline.errors import GroupIdTaken, LeaseLost, StrandlineError
from strandline.group.checks import Check, ask, is_true
from strandline.group.core.parts import Dep, Handler, Hook, Recipe
from strandline.group.definition import Group
from strandline.group.open_targets import Target
from strandline.testing import limits
from strandline.testing.faults import Crash
from strandline.testing.prove import worlds
from strandline.testing.prove.group_handlers import DEADLINE_S, ProcessorKills, ProgramHandlers
from strandline.testing.prove.group_maker import make
from strandline.testing.prove.group_model import GroupModel, ModelGroup, ModelGroupEnd, ModelStepEnd
from strandline.testing.prove.group_statements import Spec, value_of
from strandline.testing.prove.group_steps import ProgramStep, statements_of
from strandline.testing.prove.group_world import FIRST, Shop, shop
from strandline.testing.prove.program import Difference, Program

__all__ = ["make", "run"]

SOLO: Final = ("foreign", "cancel", "deadline", "away")
"""What a handler does that other groups could see: such a group runs alone."""
HANGS_S: Final = 60.0
RUNS_MAX: Final = 20
LATE_S: Final = 0.03


class SubmittedGroup:
    """A group that was submitted, and has not ended as far as the model goes."""

    def __init__(self, id_: str, spec: Spec, made: Group, going: ModelGroup) -> None:
        self.id, self.spec, self.made, self.going = id_, spec, made, going
        self.cancelled = False
        self.end: ModelGroupEnd | None = None

    @property
    def solo(self) -> bool:
        return any(self.going.asks(what) for what in SOLO)


class GroupRun:
    """Runs a program on groups and on the model, and compares."""

    def __init__(self, program: Program, *, url: str | None = None) -> None:
        settings = dict(program.settings)
        kinds = dict(settings.pop("kinds", None) or {"a": "sqlite", "b": "sqlite"})
        self.world = worlds.world(settings.pop("journal", worlds.MEMORY), {}, url=url)
        self.shops: dict[str, Shop] = {
            name: shop(kind, n, url, self.world.clock) for n, (name, kind) in enumerate(sorted(kinds.items()))
        }
        self.model = GroupModel(kinds, settings.get("on_conflict", "fail"))
        self.model.databases = {
            name: {table: deepcopy(FIRST[table]) for table in one.tables} for name, one in self.shops.items()
        }
        self.program, self.settings = program, settings
        self.all: list[SubmittedGroup] = []
        self.done: Counter[str] = Counter()
        self.told = ProgramHandlers(self)
        self.kills = ProcessorKills()
        self.groups = self.open()

    def open(self) -> Any:
        targets = {name: Target(one.url) for name, one in self.shops.items()}
        handlers = {"asked": self.told.asked, "undo": self.told.undo, "hook": self.told.hook}
        return self.world.s.groups(targets=targets, handlers=handlers, **{"lease_s": 60, **self.settings})

    def run(self) -> None:
        """All calls, then everything that is left to be seen; `Difference` where something is wrong."""
        try:
            for index, (name, how) in enumerate(self.program.calls):
                try:
                    getattr(self, f"do_{name}")(**how)
                    self.done[name] += 1
                except Difference as difference:
                    raise Difference(difference.kind, difference.message, f"call {index}, {name}: ") from None
                except StrandlineError as error:
                    raise Difference(error.name, str(error), f"call {index}, {name}: ") from error
            self.do_run([], None)
            self.check_leftovers()
        finally:
            self.told.late.set()
            self.world.close()
            for one in self.shops.values():
                one.close()

    # ------------------------------------------------------------ calls

    def do_submit(self, group: Spec | None) -> None:
        id_ = f"g{len(self.all)}"
        going = ModelGroup(self.model, group or {})
        if not going.steps:
            return
        one = SubmittedGroup(id_, group or {}, self.group(id_, going), going)
        if one.solo:
            self.do_run([], None)
        self.all.append(one)
        self.groups.submit(one.made)
        if one.solo:
            self.do_run((group or {}).get("kills") or [], None)

    def do_again(self, nth: int) -> None:
        """G59: the same again is the same group; another one of its id is refused."""
        if not self.all:
            return
        one = self.all[(nth or 0) % len(self.all)]
        self.groups.submit(one.made)
        other = Group(one.id)
        other.empty("another")
        try:
            self.groups.submit(other)
        except GroupIdTaken:
            return
        raise Difference("id", f"{one.id} was taken twice")

    def do_cancel(self, nth: int) -> None:
        """One that has not begun."""
        left = [one for one in self.all if one.end is None]
        if left:
            one = left[(nth or 0) % len(left)]
            self.groups.cancel(one.id)
            one.cancelled = True

    def do_foreign(self, call: Spec | None) -> None:
        """Somebody else writes, while no group runs: what was submitted runs first."""
        self.do_run([], None)
        self.foreign(call or {})
        self.model.foreign(call or {})

    def step(self, group: str, step: str) -> ProgramStep:
        """A step of a group that was submitted."""
        steps: list[ProgramStep] = next(one.going.steps for one in self.all if one.id == group)
        return next(one for one in steps if one.name == step)

    def foreign(self, call: Spec) -> None:
        """Somebody else executes a statement."""
        statement = statements_of(self.model.kinds, call.get("on")).get(call.get("op") or "")
        if statement is not None:
            self._tick()
            self.shops[call["on"]].foreign(statement, call)
            self._tick()

    def _tick(self) -> None:
        """Others write later than the group, also by the clocks of targets that go by them."""
        wall = "cassandra" in self.model.kinds.values()
        self.world.clock.now = now_us() if wall else self.world.clock.now + 1_000_000

    def do_clock(self, seconds: float) -> None:
        back = (seconds or 0) < 0 and not {"lww", "cassandra"}.isdisjoint(self.model.kinds.values())
        self.world.clock.advance(0 if back else seconds or 0)  # cells that were written in the future: clock_ahead

    def do_new_process(self, abandoned: bool) -> None:
        self.world.new_process(abandoned=bool(abandoned))
        self.groups = self.open()

    def do_run(self, kills: list[Any], parallel: int | None) -> None:
        """A processor runs until nothing is left; or it is killed at points, and others go on."""
        self.kills.plan([kill for kill in kills or [] if isinstance(kill, list) and len(kill) == 2])
        if parallel:
            self.settings = {**self.settings, "parallel_groups": parallel}
            self.do_new_process(False)
        self.processed()
        self.compare()

    # ------------------------------------------------------------ the product

    def group(self, id_: str, going: ModelGroup) -> Group:
        """The group as the product takes it."""
        deadline_s = DEADLINE_S if going.asks("deadline") else None
        hook = Hook("hook") if going.post else None
        made = Group(id_, on_conflict=going.conflict, post_hook=hook, deadline_s=deadline_s)
        for one in going.steps:
            backs = [(f"{one.name}_fail{n}", spec) for n, spec in enumerate(one.on_failure)]
            undo: Any = None
            if isinstance(one.undo, dict):
                backs.append((f"{one.name}_back", {"on": one.on, **one.undo}))
                undo = f"{one.name}_back"
            elif one.undo == "handler":
                undo = Handler("undo")
            for name, spec in backs:
                statement = statements_of(self.model.kinds, spec["on"])["name"]
                values = {"id": spec.get("id") or 1, "name": spec.get("name") or "x"}
                made.update(name, statement.text, values, target=spec["on"], is_rollback=True)
            failing = [name for name, _ in backs if name != undo]
            self._add(going, made, one, undo, failing)
        return made

    def _add(self, going: ModelGroup, made: Group, one: ProgramStep, undo: Any, failing: list[str]) -> None:
        needed = {name: None for name in (*one.needs, one.from_) if name is not None}
        more: dict[str, Any] = {"depends_on": [self._dep(going, name) for name in needed]}
        if one.expression is not None:
            more["recipes"] = [Recipe("r", expression=one.expression.text)]
        elif one.ask is not None:
            more["recipes"] = [Recipe("r", handler="asked", timeout_s=_patience(one.ask))]
        more["checks"] = [self._check(check) for check in one.checks]
        more |= {"must_exist": True} if one.must == "exist" else {}
        more |= {"must_not_exist": True} if one.must == "absent" else {}
        more |= {"undo": undo} if undo is not None else {}
        more |= {"execute_on_failure": failing} if failing else {}
        more |= {"irreversible": True} if one.final else {}
        more |= {"pre_hook": "hook"} if one.pre else {}
        more |= {"post_hook": "hook"} if one.post else {}
        if one.statement is None:
            made.empty(one.name, **more)
            return
        text, values = one.statement.text, one.values(value_of(one.statement, one.spec))
        if one.from_ is not None:
            text, _ = text.replace(":v", f":{one.from_}.r.value"), values.pop("v", None)
        getattr(made, one.statement.kind)(one.name, text, values, target=one.on, **more)

    def _dep(self, going: ModelGroup, name: str) -> Dep:
        """All of a step: what has no recipe is over with its success."""
        (one,) = [each for each in going.steps if each.name == name]
        return Dep(name, "r" if one.expression is not None or one.ask is not None else None)

    def _check(self, check: Any) -> Check:
        if isinstance(check, dict):
            return ask("asked", timeout_s=_patience(check["ask"]))
        if isinstance(check, list):
            return Check(check[0], n=check[1])
        return is_true(check)

    def processed(self) -> None:
        """Run processors until one comes to an end without being killed."""
        for _ in range(RUNS_MAX):
            if not self.one_run():
                return
            self.told.saved |= self.answered()
            self.do_new_process(True)
        raise Difference("runs", f"a processor was killed {RUNS_MAX} times")

    def answered(self) -> set[str]:
        """The messages whose answers are in the log: nobody is asked that again (G72)."""
        return {
            payload["message_id"]
            for one in self.all if one.end is None
            for type_, payload, _ in self.groups.history(one.id)
            if type_ == "Answered" and not payload.get("late")
        }  # fmt: skip

    def one_run(self) -> bool:
        """Whether it was killed."""
        self._tick()
        found: list[BaseException] = []
        processor = self.groups.processor()

        def work() -> None:
            try:
                processor.run_until_idle()
            except BaseException as error:  # noqa: BLE001 (it is looked at below)
                found.append(error)

        thread = threading.Thread(target=work, daemon=True)
        with self.kills.within():
            thread.start()
            thread.join(HANGS_S)
            if thread.is_alive():
                processor.stop()
                states = {one.id: self.groups.get(one.id).state for one in self.all}
                raise Difference("hangs", f"the processor does not come to an end: {states}")
            if found:
                self.told.late.set()
                _gone()
        self.told.late.clear()
        if found and not isinstance(found[0], (Crash, LeaseLost)):
            raise Difference(type(found[0]).__name__, f"the processor ends with {found[0]!r}") from found[0]
        return bool(found)

    # ------------------------------------------------------------ what is to be seen

    def compare(self) -> None:
        """Every open group goes its way in the model, and is looked at."""
        for one in self.all:
            if one.end is not None:
                continue
            outcome = self.groups.get(one.id)
            if one.cancelled:
                one.going.end = ModelGroupEnd("aborted", None, "cancelled", one.going.seen)
                one.going.end.hooks = {("group/post", "post", False, "aborted")} if one.going.post else set()
            else:
                one.going.run(outcome)
            hows = list(one.spec.get("resolve") or [])
            while one.going.stuck is not None:
                self.resolve(one, hows.pop(0) if hows else "accept_current")
            one.end = one.going.end
            self.check_end(one)
        self.check_tables()

    def resolve(self, one: SubmittedGroup, how: str) -> None:
        """An operator says what becomes of an undo that failed."""
        step = one.going.stuck
        outcome = self.groups.get(one.id)
        failed = [name for name, seen in outcome.steps.items() if seen.state == "undo_failed"]
        if step is None or outcome.state != "rollback_failed" or failed != [step.name]:
            raise Difference("stuck", f"{one.id} is {outcome.state}, {failed} failed; not {step and step.name}")
        if step.on is not None and self.model.kinds[step.on] in ("lww", "cassandra"):
            how = "force"
        if how not in ("retry", "force", "accept_current"):
            how = "accept_current"
        self.groups.resolve(one.id, step.name, how)
        self.processed()
        one.going.go_back(how)

    def check_end(self, one: SubmittedGroup) -> None:
        outcome, end = self.groups.get(one.id), one.going.end
        states = end.states or frozenset({end.state})
        if outcome.state not in states or (outcome.failed_step, outcome.reason) != (end.failed_step, end.reason):
            raise Difference(
                "end",
                f"{one.id} is {outcome.state}, {outcome.failed_step}, {outcome.reason} ({outcome.detail}); not "
                f"{'|'.join(sorted(states))}, {end.failed_step}, {end.reason}",
            )
        for name, seen in end.steps.items():
            if name not in end.loose and (not end.unsure or name == end.failed_step):
                self.check_step(one, name, outcome.steps[name], seen)
        self.check_history(one, end)

    def check_step(self, one: SubmittedGroup, name: str, found: Any, seen: ModelStepEnd) -> None:
        if seen.state is None:
            return
        shown = [found.state, found.affected, found.reason, [verdict["value"] for verdict in found.verdicts]]
        wanted = [seen.state, seen.affected, seen.reason, seen.verdicts]
        if shown != wanted:
            raise Difference("step", f"{name} of {one.id} is {shown}, {found.detail}; not {wanted}")
        if seen.rows is not None and _sorted(found.rows) != _sorted(seen.rows):
            raise Difference("rows", f"{name} of {one.id} returned {found.rows}, not {seen.rows}")
        results = found.results.get("r", {})
        if isinstance(seen.result, list) and sorted(results.get("value", ())) == sorted(seen.result):
            return
        if (results.get("value"), "value" in results) != (seen.result, seen.has_result):
            raise Difference("result", f"{name} of {one.id} has {results}, not {seen.result!r}")

    def check_history(self, one: SubmittedGroup, end: ModelGroupEnd) -> None:
        counted = Counter(type_ for type_, _, _ in self.groups.history(one.id))
        if counted["Decided"] != 1 or counted["Ended"] != 1:
            raise Difference("history", f"{one.id} has {dict(counted)}")
        played = self.groups.playback(one.id)
        if not played.equal:
            raise Difference("playback", f"{one.id}: {played.difference}")
        if not end.unsure:
            self.told.check(one.id, end)

    def check_tables(self) -> None:
        for name, one in self.shops.items():
            found = one.database()
            for table, rows in found.items():
                wanted = self.model.databases[name][table]
                if rows != wanted:
                    more = [row for key, row in rows.items() if wanted.get(key) != row]
                    less = [row for key, row in wanted.items() if rows.get(key) != row]
                    raise Difference("tables", f"{table} of {name} has {more}, not {less}")

    def check_leftovers(self) -> None:
        """Nothing stays behind: no transaction, no held row, nothing in the inbox."""
        for name, one in self.shops.items():
            if left := one.leftovers():
                raise Difference("leftovers", f"{name}: {left}")
        last = Group("last")
        for name in sorted(self.shops):
            last.update(f"all_{name}", "UPDATE account SET name = 'last' WHERE id = 1", target=name)
        self.groups.submit(last)
        if self.one_run() or self.groups.get("last").state != "committed":
            raise Difference("leftovers", f"{self.groups.get('last')} after all others have ended")
        inbox = [event.type for event in self.world.s.journal.read("group_inbox|default")]
        if inbox:
            raise Difference("leftovers", f"the inbox still has {inbox}")


def _sorted(rows: Any) -> list[Any]:
    return sorted((sorted(dict(row).items()) for row in rows), key=repr)


def _patience(ask: Spec) -> float | None:
    return LATE_S if ask.get("do") == "late" else None


def _gone() -> None:
    """Wait until the threads of a processor that was killed have ended."""
    until = time.monotonic() + 10
    for thread in threading.enumerate():
        if thread.name.startswith("strandline-group"):
            thread.join(max(0.0, until - time.monotonic()))


def run(program: Program, *, url: str | None = None) -> Counter[str]:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    with limits.small(program.limits):
        ran = GroupRun(program, url=url)
        ran.run()
    return ran.done
