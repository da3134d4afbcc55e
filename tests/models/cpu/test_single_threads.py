"""Threads that each compute alone."""

import threading

import pytest
import torch

from sphereface.models.cpu.single_threads import SingleThreads, single_threads


def test_they_change_nothing_for_others(two_threads):
    """Each of them computes alone; the one that waits for them, and those that come later, with as many as before."""
    used = []
    SingleThreads(2).map(lambda _: used.append(torch.get_num_threads()), 8)
    assert used == 8 * [1]
    assert torch.get_num_threads() == 2
    found = []
    later = threading.Thread(target=lambda: found.append((torch.ones(3).sum(), torch.get_num_threads())[1]))
    later.start()
    later.join()
    assert found == [2]


def test_an_error_in_a_thread_is_told_and_the_threads_go_on(two_threads):
    threads, done = single_threads(2), []
    assert single_threads(2) is threads
    with pytest.raises(ZeroDivisionError):
        threads.map(lambda piece: done.append(1 // piece), 3)
    assert sorted(done) == [0, 1]
    threads.map(done.append, 2)
    assert sorted(done) == [0, 0, 1, 1]


def test_where_no_thread_can_be_had_that_is_said_and_nothing_waits(monkeypatch, two_threads):
    started = []

    def start(thread):
        started.append(thread)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        begin(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        SingleThreads(2)
    started[0].join(10)
    assert not started[0].is_alive()
    assert torch.get_num_threads() == 2
