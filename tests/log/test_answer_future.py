"""A future that makes its condition late is like any other, whenever somebody looks at it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from typing import Any

import pytest

from strandline.log.answer_future import AnswerFuture

ANSWER_S = 20


def answer(future: Future[int]) -> None:
    future.set_result(7)


def refuse(future: Future[int]) -> None:
    future.set_exception(ValueError("no"))


@pytest.mark.parametrize("looked", [False, True], ids=["unseen", "seen"])
@pytest.mark.parametrize("settle", [answer, refuse])
def test_what_it_tells_is_what_it_was_told(looked: bool, settle: Callable[[Future[int]], None]) -> None:
    future: Future[int] = AnswerFuture()
    assert (future.done(), future.cancelled()) == (False, False)
    if looked:
        assert future.running()
        assert not future.cancel()
        with pytest.raises(TimeoutError):
            future.result(0)
        with pytest.raises(TimeoutError):
            future.exception(0)
    settle(future)
    seen: list[Future[int]] = []
    future.add_done_callback(seen.append)
    assert (seen, future.done(), future.running(), future.cancelled(), future.cancel()) == (
        [future], True, False, False, False,
    )  # fmt: skip
    if settle is answer:
        assert (future.result(), future.result(0), future.exception(0)) == (7, 7, None)
    else:
        assert str(future.exception(0)) == "no"
        with pytest.raises(ValueError, match="no"):
            future.result()
    for again in (answer, refuse):
        with pytest.raises(Exception, match="FINISHED"):
            again(future)


def first_of(future: Future[int]) -> int:
    return next(as_completed([future], ANSWER_S)).result()


def told_by_callback(future: Future[int]) -> int:
    told: Future[int] = Future()
    future.add_done_callback(lambda one: told.set_result(one.result()))
    return told.result(ANSWER_S)


@pytest.mark.parametrize("waits", [Future.result, first_of, told_by_callback])
def test_who_waits_is_woken(waits: Callable[[Future[int]], int]) -> None:
    future: Future[int] = AnswerFuture()
    threading.Timer(0.02, answer, [future]).start()
    assert waits(future) == 7


def test_the_functions_of_the_standard_library_take_it() -> None:
    done, late = AnswerFuture[int](), AnswerFuture[int]()
    answer(done)
    assert wait([done, late], return_when=FIRST_COMPLETED) == ({done}, {late})
    threading.Timer(0.02, answer, [late]).start()
    assert wait([done, late], ANSWER_S) == ({done, late}, set())

    async def awaited() -> list[int]:
        before, after = AnswerFuture[int](), AnswerFuture[int]()
        answer(before)
        asyncio.get_running_loop().call_later(0.02, answer, after)
        left = asyncio.wrap_future(AnswerFuture[int]())
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        return [await asyncio.wrap_future(before), await asyncio.wrap_future(after)]

    assert asyncio.run(awaited()) == [7, 7]


@pytest.mark.parametrize("looks", [Future.result, first_of, told_by_callback])
def test_an_answer_that_comes_while_somebody_begins_to_look_is_not_missed(looks: Callable[[Any], int]) -> None:
    for _ in range(300):
        future: Future[int] = AnswerFuture()
        begun = threading.Barrier(2)

        def settle(future: Future[int] = future, begun: threading.Barrier = begun) -> None:
            begun.wait()
            answer(future)

        thread = threading.Thread(target=settle)
        thread.start()
        begun.wait()
        assert looks(future) == 7
        thread.join()
