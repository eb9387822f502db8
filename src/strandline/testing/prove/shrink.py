"""Makes a failing program smaller: fewer calls, then fewer settings and limits, then smaller arguments.

Plain delta debugging. Any list of calls is a program, because the model answers every call in every state; so calls can
be left out at will. A smaller program counts only if it fails in the same way, by the name of its failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from strandline.testing.prove.program import Call, Program

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, *, tries: int = 400) -> Program:
    """The smallest program found that still fails, within so many runs."""
    left = [tries]

    def still(smaller: Program) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(smaller)

    while True:
        before = program
        program = _fewer_calls(program, still)
        program = _fewer_named(program, still)
        program = _smaller_arguments(program, still)
        if program == before or left[0] <= 0:
            return program


def _fewer_calls(program: Program, fails: Fails) -> Program:
    size = max(1, len(program.calls) // 2)
    while True:
        at, removed = 0, False
        while at < len(program.calls):
            smaller = program.with_calls(program.calls[:at] + program.calls[at + size :])
            if fails(smaller):
                program, removed = smaller, True
            else:
                at += size
        if size == 1 and not removed:
            return program
        size = max(1, size // 2)


def _fewer_named(program: Program, fails: Fails) -> Program:
    for name in list(program.limits):
        smaller = replace(program, limits={key: value for key, value in program.limits.items() if key != name})
        program = smaller if fails(smaller) else program
    for name in list(program.settings):
        smaller = replace(program, settings={key: value for key, value in program.settings.items() if key != name})
        program = smaller if fails(smaller) else program
    return program


def _smaller_arguments(program: Program, fails: Fails) -> Program:
    for index, (name, how) in enumerate(program.calls):
        for key in how:
            for other in _less(how[key]):
                call: Call = [name, {**program.calls[index][1], key: other}]
                smaller = program.with_calls([*program.calls[:index], call, *program.calls[index + 1 :]])
                if smaller != program and fails(smaller):
                    program = smaller
    return program


def _less(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        if value > 1:
            yield 1
            yield value - 1
    elif isinstance(value, list) and value:
        yield []
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
    if value is not None and not isinstance(value, bool):
        yield None
