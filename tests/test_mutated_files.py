"""Spoiled files of every kind: each is read or refused by an error of ours; none crashes, hangs or breaks a reader."""

import resource
import subprocess
import sys
import threading
from collections import Counter

import pytest

from tests.mutated import READERS, WAYS, mutate

COUNT = 168  # of each kind: over 2,000 in all
PATIENCE = 20  # seconds for one file
STARTING = 20  # more for the first, after all imports
MEMORY = 6 << 30  # bytes that the reading process may map


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def lines_of(process):
    """What a process prints; one that is silent for too long is ended."""
    patience = PATIENCE + STARTING
    while True:
        timer = threading.Timer(patience, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            return
        patience = PATIENCE
        yield line.rstrip("\n")


@pytest.mark.parametrize("kind", READERS)
def test_a_spoiled_file_is_read_or_refused(kind, tmp_path):
    command = [sys.executable, "-m", "tests.mutated", str(tmp_path), kind, "0", str(COUNT)]
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", preexec_fn=limit_memory
        ) as process,
    ):
        lines = list(lines_of(process))
        process.wait()
        errors.seek(0)
        assert lines[-1:] == ["done"], f"{lines[-1:]}, exit code {process.returncode}\n{errors.read()[-3000:]}"
    ends = Counter(line.split()[0] for line in lines)
    assert ends["reading"] == ends["unchanged"] + ends["changed"] + ends["refused"] == COUNT
    assert ends["unchanged"] < COUNT / 2, "hardly anything was spoiled"


def test_mutations_are_of_all_kinds_and_the_same_again():
    whole = bytes(range(256)) * 8
    spoiled = [mutate(whole, seed) for seed in range(COUNT)]
    assert spoiled == [mutate(whole, seed) for seed in range(COUNT)]
    assert sum(data != whole for data in spoiled) > 0.95 * COUNT
    assert len(READERS) * COUNT >= 2000
    assert COUNT % (2 * len(WAYS)) == 0
