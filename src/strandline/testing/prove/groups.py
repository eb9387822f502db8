"""Programs of event groups: random graphs of steps over two databases, handlers that answer, fail or write themselves,
others who write between groups and steps, kills at named points, new processes, cancels.

A group is executed by the product, and one after the other by the model (`group_model`). At the end of each run of a
processor every group must have ended as it did there, step by step, and all tables must hold the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from threading import Event, Thread
from typing import Any, Final

from strandline.errors import GroupIdTaken, InvalidGroup, LeaseLost, NotFound, StrandlineError, Unavailable
from strandline.group.definition import Group
from strandline.group.open_targets import Target
from strandline.testing import limits
from strandline.testing.faults import Crash
from strandline.testing.prove import worlds
from strandline.testing.prove.group_building import REFUSED, SubmittedGroup, graph_of, group_of, refused
from strandline.testing.prove.group_handlers import ProgramHandlers
from strandline.testing.prove.group_maker import make
from strandline.testing.prove.group_model import GroupModel, ModelGroup, ModelGroupEnd, ModelStepEnd
from strandline.testing.prove.group_processors import ProcessorKills, RunningProcessor, gone
from strandline.testing.prove.group_situations import SITUATIONS
from strandline.testing.prove.group_statements import Spec
from strandline.testing.prove.group_steps import Place, ProgramStep, meet, statements_of
from strandline.testing.prove.group_world import FIRST, MODELLED, Shop, SqliteShop, SqlShop, shop
from strandline.testing.prove.program import Difference, Program
from strandline.testing.prove.servers import Servers

__all__ = ["make", "run"]

RUNS_MAX: Final = 20
TAKEN_S: Final = 30
"""By so much others are late after a takeover: who takes over starts above all timestamps that may have been given."""
RACES: Final = 12
"""Groups that others race."""


class GroupRun:
    """Runs a program on groups and on the model, and compares."""

    def __init__(self, program: Program, *, servers: Servers | None = None) -> None:
        settings = dict(program.settings)
        kinds: dict[str, str] = dict(settings.pop("kinds", None) or {"a": "sqlite", "b": "sqlite"})
        self.world = worlds.world(settings.pop("journal", worlds.MEMORY), {}, servers=servers)
        self.shops: dict[str, Shop] = {
            name: shop(kind, n, servers, self.world.clock) for n, (name, kind) in enumerate(sorted(kinds.items()))
        }
        modelled = {name: MODELLED.get(kind, kind) for name, kind in kinds.items()}
        self.model = GroupModel(modelled, settings.get("on_conflict", "fail"))
        self.model.databases = {
            name: {table: deepcopy(FIRST[table]) for table in one.tables} for name, one in self.shops.items()
        }
        self.program, self.settings = program, settings
        self.all: list[SubmittedGroup] = []
        self.done: Counter[str] = Counter()
        self.situations: set[Any] = set()
        """Those whose tables are there, by target."""
        self.told = ProgramHandlers(self)
        self.kills = ProcessorKills()
        self.situated: Callable[[Any], Any] = lambda message: {"value": 1}
        self.groups = self.open()

    def open(self, s: Any = None) -> Any:
        """The groups of a process."""
        targets = {name: Target(one.url) for name, one in self.shops.items()}
        handlers = {
            "asked": self.told.asked, "undo": self.told.undo, "hook": self.told.hook,
            "situated": self.situated_by,
        }  # fmt: skip
        return (s or self.world.s).groups(targets=targets, handlers=handlers, **{"lease_s": 60, **self.settings})

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
            self.release()
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
        one = SubmittedGroup(id_, group or {}, group_of(id_, going), going)
        if one.solo:
            self.release()
        if not self.submitted(one):
            return
        self.all.append(one)
        if one.solo:
            self.do_run([] if going.asks("deadline") else (group or {}).get("kills") or [], None)

    def submitted(self, one: SubmittedGroup) -> bool:
        """Whether it is taken: a table that has triggers takes no step that must be undone by itself (G55)."""
        with suppress(InvalidGroup):  # it says the same below
            one.going.unsaved = frozenset(self.groups.explain(one.made).unsaved)
        wanted = not one.going.is_in_triggers()
        try:
            self.groups.submit(one.made)
        except InvalidGroup as error:
            if wanted or {problem.code for problem in error.problems} != {"not_invertible"}:
                raise
            return False
        if not wanted:
            raise Difference("triggers", f"{one.id} was taken")
        return True

    def do_refused(self, what: str | None, on: str | None) -> None:
        """A group that makes no sense is refused, and nothing of it is recorded."""
        kind = self.model.kinds.get(on or "")
        if what not in REFUSED or kind is None or (found := refused(what, on or "", kind)) is None:
            return
        made, code = found
        try:
            self.groups.submit(made)
        except InvalidGroup as error:
            if code not in {problem.code for problem in error.problems}:
                raise
        else:
            raise Difference("refused", f"a group was taken: {what} on {kind}")
        try:
            self.groups.get(made.id)
        except NotFound:
            return
        raise Difference("refused", f"a group was recorded: {what} on {kind}")

    def do_graph(self, edges: list[Any]) -> None:
        """S5: steps that close a cycle are refused, and leave the group as it was."""
        id_ = f"graph{self.done['graph']}"
        made = graph_of(id_, [edge for edge in edges or [] if len(edge) == 3])
        if made is not None and made.steps:
            self.groups.submit(made)
            self.processed()
            if (found := self.groups.get(id_)).state != "committed":
                raise Difference("graph", f"{found}")
            self.compare()

    def do_alter(self, on: str | None, what: str | None) -> None:
        """The table of accounts becomes another one, perhaps between the submit of a group and its start."""
        shop_ = self.shops.get(on or "")
        if on is not None and isinstance(shop_, SqlShop):
            if what == "column" and on not in self.model.extra:
                shop_.add_column()
                self.model.add_column(on)
            elif what == "triggers":
                shop_.triggers(on=on not in self.model.triggers)
                self.model.triggers ^= {on}

    def do_situation(self, on: str | None, name: str | None) -> None:
        """Something that chance would hardly bring together, on tables of its own."""
        shop_, found = self.shops.get(on or ""), SITUATIONS.get(name or "")
        kind = self.model.kinds.get(on or "")
        if on is None or found is None or kind not in found.kinds or not isinstance(shop_, SqlShop):
            return
        self.release()
        if (on, found.tables) not in self.situations:
            shop_.execute(f"DROP TABLE IF EXISTS {found.tables[0].split()[2]}")
            for text in found.tables:
                shop_.execute(text)
            self.situations.add((on, found.tables))
        self.situated = lambda message: {"value": 1}
        found.happens(self, shop_, on, f"situation{self.done['situation']}")
        self.compare()

    def situated_by(self, message: Any) -> Any:
        """The handler of situations: what it does is another thing in each."""
        return self.situated(message)

    def do_race(self, on: str | None) -> None:
        """Others remove and insert rows while groups change them that say what must be there (G40)."""
        shop_ = self.shops.get(on or "")
        if on is None or not isinstance(shop_, SqlShop):
            return
        self.release()
        ids = [f"race{self.done['race']}-{n}" for n in range(RACES)]
        for n, id_ in enumerate(ids):
            made = Group(id_)
            if n % 2:
                text = "UPDATE seat SET who = NULL WHERE id = 90"
                made.update("x", text, target=on, must_exist=True, post_hook="hook" if n % 4 == 1 else None)
            else:
                text = "INSERT INTO seat (id, who) VALUES (90, NULL)"
                made.insert("x", text, target=on, must_not_exist=True, post_hook="hook" if n % 4 == 0 else None)
            self.groups.submit(made)
        over = Event()
        racer = Thread(target=shop_.race, args=(over,))
        racer.start()
        try:
            self.processed()
        finally:
            over.set()
            racer.join()
        for id_ in ids:
            outcome = self.groups.get(id_)
            if outcome.state == "committed" and outcome.steps["x"].affected == 1:
                continue
            if (outcome.state, outcome.reason) != ("aborted", "not_applied"):
                raise Difference("race", f"{id_} is {outcome}")
        shop_.execute("DELETE FROM seat WHERE id = 90")

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
            self.tick()
            self.shops[call["on"]].foreign(statement, call)
            self.tick()

    def lock(self, on: Any, seconds: float) -> None:
        """Somebody else lets nobody write for a while."""
        shop_ = self.shops.get(on)
        if isinstance(shop_, SqlShop):
            shop_.lock(seconds)

    def tick(self) -> None:
        """Others write later than the group, also by the clocks of targets that go by them."""
        self.world.clock.tick()

    def do_away(self, on: str | None, seconds: float | None) -> None:
        """A target is away when a processor starts, and comes back: its groups wait (G75)."""
        shop_ = self.shops.get(on or "")
        if isinstance(shop_, SqliteShop):
            self.do_new_process(False)
            shop_.leave(seconds or 0.01)
            self.do_run([], None)

    def do_clock(self, seconds: float) -> None:
        if self.program.on == worlds.KAFKA_CASSANDRA:
            return  # what others write there has the server's time
        back = (seconds or 0) < 0 and "lww" in self.model.kinds.values()
        self.world.clock.advance(0 if back else seconds or 0)  # cells that were written in the future: clock_ahead

    def do_new_process(self, abandoned: bool) -> None:
        self.world.new_process(abandoned=bool(abandoned))
        self.groups = self.open()

    def do_run(self, kills: list[Any], parallel: int | None, taken_over: Any = None) -> None:
        """A processor runs until nothing is left; or it is killed at points, and others go on."""
        self.kills.plan([kill for kill in kills or [] if isinstance(kill, list) and len(kill) == 2])
        if parallel:
            self.settings = {**self.settings, "parallel_groups": parallel}
            self.do_new_process(False)
        self.processed(taken_over if isinstance(taken_over, list) and len(taken_over) == 2 else None)
        self.compare()

    def release(self) -> None:
        """Run all groups, and resolve those that wait for an operator."""
        self.do_run([], None)
        while any(one.end is None for one in self.all):
            for one in self.all:
                if one.end is None and one.going.stuck is not None:
                    self.resolve_all(one)
            self.processed()
            self.compare()

    # ------------------------------------------------------------ the product

    def processed(self, taken_over: Any = None) -> None:
        """Run processors until one comes to an end without being killed."""
        for _ in range(RUNS_MAX):
            if not self.one_run(taken_over):
                return
            taken_over = None
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

    def one_run(self, taken_over: Any = None) -> bool:
        """Whether it was killed, or lost its lease."""
        self.tick()
        running = RunningProcessor(self.groups)
        with self.kills.within(taken_over, self.world.faults.away):
            running.start()
            if taken_over is not None and self.kills.is_stopped(running):
                self.another_takes_over(running)
            error = running.end()
            if error is not None:
                self.told.late.set()
                gone()
        self.told.late.clear()
        for one in self.shops.values():
            one.free()
        if error is not None and not isinstance(error, (Crash, LeaseLost)):
            raise Difference(type(error).__name__, f"the processor ends with {error!r}") from error
        return error is not None

    def another_takes_over(self, stopped: RunningProcessor) -> None:
        """The log is away for a processor that stands still; another one runs to the end; then the first goes on."""
        with self.another() as s:
            for _ in range(RUNS_MAX):
                other = RunningProcessor(self.open(s))
                other.start()
                error = other.end()
                if not isinstance(error, LeaseLost):  # of a machine that is busy for longer than the lease
                    break
        self.kills.go_on()
        if error is not None:
            raise Difference("taker", f"who takes over ends with {error!r}") from error
        found = stopped.end()
        self.world.clock.advance(TAKEN_S)
        if found is not None and not isinstance(found, (LeaseLost, Unavailable)):
            raise Difference("taken over", f"who was taken over from ends with {found!r}") from found

    @contextmanager
    def another(self) -> Iterator[Any]:
        """Another process."""
        s = self.world.another()
        try:
            yield s
        finally:
            self.world._end(s)

    # ------------------------------------------------------------ what is to be seen

    def compare(self) -> None:
        """Every open group goes its way in the model, and is looked at."""
        held: list[Place] = []
        for one in self.all:
            if one.end is not None:
                continue
            if one.going.stuck is None and not meet(one.going.places(), held):
                self.goes(one)
            elif one.going.stuck is None:
                self.check_waits(one)
                held += one.going.places()
            if one.going.stuck is not None:
                held += one.going.kept()
        self.check_tables()

    def goes(self, one: SubmittedGroup) -> None:
        """It has run, and nothing stood in its way."""
        if one.cancelled:
            one.going.end = ModelGroupEnd("aborted", None, "cancelled", one.going.seen)
            one.going.end.hooks = {("group/post", "post", False, "aborted")} if one.going.post else set()
        else:
            one.going.run(self.groups.get(one.id))
        if one.going.stuck is None:
            one.end = one.going.end
            self.check_end(one)
        else:
            self.check_stuck(one)
            if not one.spec.get("keep"):
                self.resolve_all(one)

    def check_waits(self, one: SubmittedGroup) -> None:
        """G47: rows that an undo which failed has left are held; who needs them waits."""
        outcome = self.groups.get(one.id)
        if outcome.state != "queued" and not (one.cancelled and outcome.state == "aborted"):
            raise Difference("held", f"{one.id} is {outcome.state}, though rows of it are held")

    def resolve_all(self, one: SubmittedGroup) -> None:
        """Until it has ended."""
        hows = list(one.spec.get("resolve") or [])
        while one.going.stuck is not None:
            self.resolve(one, hows.pop(0) if hows else "accept_current")
        one.end = one.going.end
        self.check_end(one)

    def check_stuck(self, one: SubmittedGroup) -> ProgramStep:
        """An operator is waited for, for one step."""
        step, outcome = one.going.stuck, self.groups.get(one.id)
        failed = [name for name, seen in outcome.steps.items() if seen.state == "undo_failed"]
        if step is None or outcome.state != "rollback_failed" or failed != [step.name]:
            raise Difference("stuck", f"{one.id} is {outcome.state}, {failed} failed; not {step and step.name}")
        return step

    def resolve(self, one: SubmittedGroup, how: str) -> None:
        """An operator says what becomes of an undo that failed."""
        step = self.check_stuck(one)
        if step.on is not None and self.model.kinds[step.on] == "lww":
            how = "force"
        if how not in ("retry", "force", "accept_current"):
            how = "accept_current"
        self.groups.resolve(one.id, step.name, how)
        self.processed()
        one.going.go_back(how)
        while one.going.stuck is None and (again := self.again_on_its_row(one, step)) is not None:
            self.groups.resolve(one.id, again, "force")
            self.processed()

    def again_on_its_row(self, one: SubmittedGroup, step: ProgramStep) -> str | None:
        """Another step on a row of a target without transactions that was put back by force: its undo finds the new
        write time there, and waits for an operator once more."""
        outcome = self.groups.get(one.id)
        rows = [other.name for other in one.going.steps if meet(other.places(), step.places())]
        failed = [name for name, seen in outcome.steps.items() if seen.state == "undo_failed" and name in rows]
        cells = step.on is not None and self.model.kinds[step.on] == "lww"
        return failed[0] if failed and cells else None

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
            for table, rows in one.rows(extra=name in self.model.extra).items():
                wanted = list(self.model.databases[name][table].values())
                if _sorted(rows) != _sorted(wanted):
                    more, less = [row for row in rows if row not in wanted], [row for row in wanted if row not in rows]
                    raise Difference("tables", f"{table} of {name} has {more}, not {less}")

    def check_leftovers(self) -> None:
        """Nothing stays behind: no transaction, no held row, nothing in the inbox."""
        for name, one in self.shops.items():
            if left := one.leftovers():
                raise Difference("leftovers", f"{name}: {left}")
        last = Group("last")
        for name in sorted(self.shops):
            if name not in self.model.triggers:
                last.update(f"all_{name}", "UPDATE account SET name = 'last' WHERE id = 1", target=name)
        if not last.steps:
            return
        self.groups.submit(last)
        self.processed()
        if self.groups.get("last").state != "committed":
            raise Difference("leftovers", f"{self.groups.get('last')} after all others have ended")
        inbox = [event.type for event in self.world.s.journal.read("group_inbox|default")]
        if inbox:
            raise Difference("leftovers", f"the inbox still has {inbox}")


def _sorted(rows: Any) -> list[Any]:
    return sorted((sorted(dict(row).items()) for row in rows), key=repr)


def run(program: Program, *, servers: Servers | None = None) -> Counter[str]:
    """Run a program; how often each call was made. `Difference` where the product is not as the model."""
    with limits.small(program.limits):
        ran = GroupRun(program, servers=servers)
        ran.run()
    return ran.done
