"""`Outcome`, on which every wait of the package rests."""

import functools
import threading

import pytest

from llb._outcome import Outcome
from llb._waiting import wait


def test_all_waiters_get_the_result():
    outcome, results = Outcome(), []
    threads = [threading.Thread(target=lambda: results.append(wait(outcome))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not outcome.join(0)
    outcome.succeed(7)
    for thread in threads:
        thread.join()
    assert results == [7] * 5
    assert outcome.join(0) and outcome.succeeded


def test_an_announced_end_is_waited_for():
    outcome, results = Outcome(), []
    threads = [threading.Thread(target=lambda: results.append(wait(outcome))) for _ in range(5)]
    for thread in threads:
        thread.start()
    outcome.announce()
    assert not outcome.join(0) and not outcome.join(0.001)
    assert results == []
    outcome.succeed(7)
    for thread in threads:
        thread.join()
    assert results == [7] * 5 and outcome.join(0)


def test_an_exception_is_raised_by_each_wait():
    outcome = Outcome()
    outcome.fail(KeyError("gone"))
    for _ in range(2):
        with pytest.raises(KeyError, match="gone"):
            wait(outcome)
    assert outcome.done and not outcome.succeeded


def test_the_end_calls_the_functions():
    outcome, calls = Outcome(), []
    outcome.when_done(lambda: calls.append(outcome.done))
    assert calls == []
    outcome.succeed(None)
    assert calls == [True]


def test_a_function_is_called_once_however_late_it_comes():
    """Functions are added while another thread ends the work."""
    for _ in range(200):
        outcome, calls = Outcome(), []
        thread = threading.Thread(target=outcome.succeed, args=(None,))
        outcome.when_done(functools.partial(calls.append, "before"))
        thread.start()
        for at in range(3):
            outcome.when_done(functools.partial(calls.append, at))
        thread.join()
        assert sorted(calls, key=str) == [0, 1, 2, "before"]
