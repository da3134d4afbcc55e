"""What a gallery survives: kills, a full disk, four processes at once; and that it syncs before it answers."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.errors import JobFailed
from sphereface.gallery.copies import check
from sphereface.gallery.gallery import Gallery
from sphereface.metrics.templates import pool
from tests.gallery.test_gallery import opened, photo

ROOT = Path(__file__).parents[2]
BURSTS = 30

ENROL = """
    import sys
    from pathlib import Path
    from tests.gallery.test_gallery import opened, photo
    with opened(Path(sys.argv[1])) as gallery:
        for number in range(int(sys.argv[2]), 1_000_000):
            gallery.enroll(f"person {number}", [photo(3 * number + each) for each in range(3)])
            print(number, flush=True)
"""


def start(script, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_everybody_who_was_acknowledged_is_there_whole_after_kills(tmp_path):
    path, rng, acknowledged = tmp_path / "people.gallery", random.Random(0), []
    opened(path).close()
    for _ in range(BURSTS):
        with start(ENROL, path, acknowledged[-1] + 1 if acknowledged else 0) as process:
            acknowledged.append(int(process.stdout.readline()))
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    with opened(path) as gallery:
        people = {person.name: person for person in gallery.people()}
        assert len(acknowledged) >= BURSTS
        assert {f"person {number}" for number in acknowledged} <= set(people)
        assert len(people) - len(acknowledged) <= BURSTS  # stored, and killed before the answer
        assert {person.photos for person in people.values()} == {3}
        assert check(gallery) == []
        three = np.stack([photo(3 * number + each).feature for number in acknowledged for each in range(3)])
        owner = np.repeat(np.arange(len(acknowledged)), 3)
        found = gallery.search(pool(unit_rows(three), owner, len(acknowledged)))
        assert found.people[:, 0].tolist() == [people[f"person {number}"].id for number in acknowledged]
        assert found.scores == pytest.approx(1, abs=1e-6)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_every_answer_comes_after_a_sync(tmp_path):
    path, log = tmp_path / "people.gallery", tmp_path / "strace.log"
    opened(path).close()
    script = ENROL.replace("1_000_000", "6")
    command = ["strace", "-f", "-e", "trace=fsync,fdatasync,write", "-o", str(log)]
    subprocess.run(
        [*command, sys.executable, "-c", textwrap.dedent(script), path, "0"], cwd=ROOT, check=True, capture_output=True
    )
    calls = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines() if " " in line]
    answers = [place for place, call in enumerate(calls) if re.match(r'write\(1, "\d', call)]
    assert len(answers) == 6
    for before, answer in zip([0, *answers], answers, strict=False):
        assert any(call.startswith(("fsync", "fdatasync")) for call in calls[before:answer])


def test_a_full_disk_loses_nothing_that_was_there(tmp_path):
    path = tmp_path / "people.gallery"
    with opened(path) as gallery:
        gallery.enroll("Ada", [photo(1)])
        with gallery.store.reading() as database:  # SQLite's own limit fails like a full disk
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            database.execute(f"PRAGMA max_page_count={pages + 1}")

        def fill():
            for number in range(1_000):
                gallery.enroll("Bob", [photo(2 + number)])

        with pytest.raises(JobFailed, match="the disk is full; this change was not stored"):
            fill()
        assert check(gallery) == []
        stored = gallery.find("Bob").photos
        assert [len(gallery.store.photos(person.id)) for person in gallery.people()] == [1, stored]
    with opened(path) as gallery:
        assert gallery.find("Ada").photos == 1
        gallery.enroll("Bob", [photo(5_000)])
        assert gallery.find("Bob").photos == stored + 1


MIX = """
    import random, sys, time
    from pathlib import Path
    from tests.gallery.test_gallery import best, opened, photo
    path, me, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    rng, mine, made, gone = random.Random(me), {}, 0, 0
    with opened(path) as gallery:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            what = rng.random()
            if what < 0.4 or not mine:
                number = 100_000 * (me + 1) + made
                person, _ = gallery.enroll(f"person {number}", [photo(number)])
                mine[number] = person.id
                made += 1
            elif what < 0.6:
                number = rng.choice(list(mine))
                gallery.store.remove(gallery.find(f"person {number}").id, actor="tests")
                person = mine.pop(number)
                gone += 1
                assert best(gallery, number)[0] != person, "a removed person was named"
            else:
                number = rng.choice(list(mine))
                assert best(gallery, number)[0] == mine[number], "an enrolled person was not named"
    print(made, gone, *mine)
"""


@pytest.mark.timeout(200)
def test_four_processes_enroll_remove_and_search_at_once(tmp_path):
    path, seconds = tmp_path / "people.gallery", float(os.environ.get("SPHEREFACE_GALLERY_SECONDS", "6"))
    opened(path).close()
    processes = [start(MIX, path, number, seconds) for number in range(4)]
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    counts = [list(map(int, answer.split())) for answer in answers]
    left = {f"person {number}" for _, _, *numbers in counts for number in numbers}
    with opened(path) as gallery:
        assert {person.name for person in gallery.people()} == left
        entries = gallery.store.log()
        assert sum(entry.action == "enroll" for entry in entries) == sum(made for made, *_ in counts)
        assert sum(entry.action == "remove" for entry in entries) == sum(gone for _, gone, *_ in counts)
        assert check(gallery) == []
        stored = np.concatenate([units for _, units in gallery.store.templates()])
        probes = unit_rows(np.random.default_rng(0).normal(size=(50, 32))).astype(np.float32)
        ids = np.concatenate([ids for ids, _ in gallery.store.templates()])
        scores = probes.astype(float) @ stored.astype(float).T
        assert gallery.search(probes).people[:, 0].tolist() == ids[scores.argmax(1)].tolist()


def test_a_crash_while_a_gallery_is_made_leaves_a_file_that_opens(tmp_path):
    path = tmp_path / "people.gallery"
    path.touch()
    with Gallery.open(path) as gallery:
        assert gallery.people() == []
