"""A set to features on disk: in order, restartable to the bit, in parts, and nothing left out in silence."""

import fcntl
import json

import numpy as np
import pytest

from sphereface.contract import Alignment, Card
from sphereface.data.formats.sets import convert
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.people import PeopleFolder
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import CHUNK, embed_set
from sphereface.embed.store import Part, open_features
from sphereface.errors import ContractMismatch, DataFormatError, JobFailed, UnreadableImage
from sphereface.faces.images import decode
from tests.data.sets import tree
from tests.embed.sets import Ended, mixing_embedder, write_faces
from tests.modes import mode, umask

BATCH = 2  # 60 faces: two chunks, the second not whole
ONE = 2  # calls of the network, image and mirror: for one face to learn the dimension, then for each batch
CALLS = ONE + CHUNK * ONE  # until a chunk is done


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    return write_faces(tmp_path_factory.mktemp("faces") / "set")


@pytest.fixture
def copied(faces, tmp_path):
    convert(faces, tmp_path / "set", to="folder")
    return tmp_path / "set"


@pytest.fixture(scope="module")
def undisturbed(faces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "out"
    embed_set(faces, folder, mixing_embedder(), batch=BATCH)
    return folder


def expected(faces, embedder, batch=BATCH):
    people = PeopleFolder(faces)
    pixels = np.stack([decode(people.read(place)) for place in range(len(people.paths))])
    return np.concatenate([embedder.embed_batch(pixels[at : at + batch]) for at in range(0, len(pixels), batch)])


def test_features_are_those_of_the_batches_in_the_order_of_the_set(faces, undisturbed):
    people = PeopleFolder(faces)
    rows = np.load(undisturbed / "features.npy", mmap_mode="r")
    np.testing.assert_array_equal(rows, expected(faces, mixing_embedder()))
    features = open_features(undisturbed, finite=True)
    np.testing.assert_array_equal(features.rows, rows)
    assert features.paths == (undisturbed / "paths.txt").read_text().splitlines() == people.paths
    assert features.people == people.people
    assert features.labels.tolist() == people.labels.tolist()
    assert features.card == Card()
    assert rows.dtype == np.float32
    assert rows.shape == (60, 12)


def test_features_are_their_owners_alone_also_while_they_are_made(faces, tmp_path):
    seen = {}
    folder = tmp_path / "out"

    def look(*_):
        seen.update({path.name: mode(path) for path in folder.iterdir()})

    with umask(0):
        embed_set(faces, folder, mixing_embedder(), batch=BATCH, progress=look)
    look()
    assert len(seen) == 7  # the six of a feature store, and the rows that were still growing
    assert set(seen.values()) == {0o600}


@pytest.mark.parametrize("workers", [0, 3])
def test_neither_workers_nor_the_format_change_a_bit(faces, undisturbed, tmp_path, workers):
    convert(faces, tmp_path / "set.zip", to="zip")
    embed_set(tmp_path / "set.zip", tmp_path / "out", mixing_embedder(), batch=BATCH, workers=workers)
    for name in ("features.npy", "paths.txt", "people.txt", "labels.npy", "journal.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.parametrize("calls", [0, 1, CALLS - 1, CALLS, CALLS + 1, 61])
def test_a_run_that_was_ended_goes_on_and_ends_as_if_it_had_not_been(faces, undisturbed, tmp_path, calls):
    with pytest.raises(Ended):
        embed_set(faces, tmp_path / "out", mixing_embedder(calls=calls), batch=BATCH)
    with pytest.raises(DataFormatError, match="unfinished; run the same"):
        open_features(tmp_path / "out")
    reported = []
    embed_set(
        faces, tmp_path / "out", mixing_embedder(), batch=BATCH, progress=lambda done, of: reported.append((done, of))
    )
    assert tree(tmp_path / "out") == tree(undisturbed)
    assert reported[0] == (32 if calls >= CALLS else 0, 60)  # only whole chunks are kept
    assert reported[-1] == (60, 60)


def test_an_end_between_the_last_chunk_and_the_manifest_is_made_up_for(faces, undisturbed, tmp_path):
    for missing in [("manifest.json",), ("manifest.json", "labels.npy"), ("manifest.json", "paths.txt", "features")]:
        folder = tmp_path / str(len(missing))
        embed_set(faces, folder, mixing_embedder(), batch=BATCH)
        for name in missing:
            if name == "features":  # sealed, and not yet renamed
                (folder / "features.npy").rename(folder / "features.npy.part")
            else:
                (folder / name).unlink()
        embed_set(faces, folder, mixing_embedder(calls=ONE), batch=BATCH)
        assert tree(folder) == tree(undisturbed)


def test_half_a_line_of_the_journal_is_dropped(faces, undisturbed, tmp_path):
    with pytest.raises(Ended):
        embed_set(faces, tmp_path / "out", mixing_embedder(calls=CALLS + 1), batch=BATCH)
    journal = tmp_path / "out" / "journal.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"rows": 3')
    embed_set(faces, tmp_path / "out", mixing_embedder(), batch=BATCH)
    assert tree(tmp_path / "out") == tree(undisturbed)


@pytest.mark.parametrize("count", [2, 7, 40])  # 30 batches: of 40 parts some are empty
def test_shards_together_are_the_whole(faces, undisturbed, tmp_path, count):
    for number in range(count, 0, -1):
        embed_set(faces, tmp_path, mixing_embedder(), batch=BATCH, part=Part(number=number, of=count))
    joined, whole = open_features(tmp_path), open_features(undisturbed)
    np.testing.assert_array_equal(np.asarray(joined.rows), whole.rows)
    assert (joined.paths, joined.people) == (whole.paths, whole.people)
    assert joined.labels.tolist() == whole.labels.tolist()
    named = open_features([tmp_path / f"part-{number}-of-{count}" for number in range(1, count + 1)])
    assert named.paths == whole.paths


def test_every_image_is_in_one_shard():
    for total, batch, count in [(0, 4, 3), (1, 4, 3), (17, 4, 3), (16, 4, 4), (1000, 7, 13)]:
        parts = [Part(number=number, of=count).positions(total, batch) for number in range(1, count + 1)]
        assert [position for part in parts for position in part] == list(range(total))
        assert all(part.start % batch == 0 for part in parts)
        assert max(map(len, parts)) - min(map(len, parts)) < 2 * batch


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/2", "1/2/3"])
def test_a_shard_is_i_of_n(text):
    assert str(Part.parse("4/4")) == "4/4"
    with pytest.raises(ValueError, match="wanted i/n"):
        Part.parse(text)


def test_an_unreadable_image_stops_the_run_which_goes_on_when_it_is_mended(copied, undisturbed, tmp_path):
    victim = copied / "p2" / "007.png"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:40])
    with pytest.raises(UnreadableImage, match=r'p2/007\.png: .*cut off.*missing="skip"'):
        embed_set(copied, tmp_path / "out", mixing_embedder(), batch=BATCH)
    victim.write_bytes(whole)
    reported = []
    embed_set(copied, tmp_path / "out", mixing_embedder(), batch=BATCH, progress=lambda done, _: reported.append(done))
    assert reported[0] == BATCH * CHUNK
    assert (tmp_path / "out" / "features.npy").read_bytes() == (undisturbed / "features.npy").read_bytes()


def test_unreadable_images_are_left_out_and_listed(copied, tmp_path):
    for name in ("p0/000.png", "p0/001.png", "p1/013.png"):  # the first two are a whole batch
        (copied / name).write_bytes(b"no image")
    with pytest.raises(Ended):
        embed_set(copied, tmp_path / "out", mixing_embedder(calls=40), batch=BATCH, missing="skip")
    _, manifest = embed_set(copied, tmp_path / "out", mixing_embedder(), batch=BATCH, missing="skip")
    assert list(manifest.unreadable) == ["p0/000.png", "p0/001.png", "p1/013.png"]
    assert manifest.count == 57
    features = open_features(tmp_path / "out")
    kept = [path for path in PeopleFolder(copied).paths if path not in manifest.unreadable]
    assert features.paths == kept
    alone = mixing_embedder().embed_batch(decode((copied / "p1/012.png").read_bytes())[None])
    np.testing.assert_array_equal(features.rows[features.find(["p1/012.png"])], alone)
    with pytest.raises(DataFormatError, match=r"1 of 2 images have no features, such as p1/013\.png \(starts with"):
        features.find(["p1/012.png", "p1/013.png"])
    with pytest.raises(UnreadableImage, match="3 images were left out"):
        embed_set(copied, tmp_path / "out", mixing_embedder(), batch=BATCH)


def test_a_finished_run_is_left_as_it_is(faces, undisturbed):
    before, said = tree(undisturbed), []
    embed_set(faces, undisturbed, mixing_embedder(calls=0), batch=BATCH, say=said.append)
    assert tree(undisturbed) == before
    assert said[-1] == f"{undisturbed} is finished already"


def test_another_job_is_refused_with_the_way_out(faces, undisturbed, copied):
    same = mixing_embedder()
    other_model = Embedder(same._network, same.card, model="b" * 64)
    for what, data, embedder, batch in [
        ("model aaaaaaaaaaaaaaaa", faces, other_model, BATCH),
        ("rule concatenate", faces, same.with_rule("sum"), BATCH),
        ("another card", faces, mixing_embedder(name="another"), BATCH),
        ("batch 2", faces, same, 4),
    ]:
        with pytest.raises(ValueError, match=f"{what}.*choose a new folder"):
            embed_set(data, undisturbed, embedder, batch=batch)
    broken_line = Embedder(same._network, same.card, model="a\nb" * 32)
    with pytest.raises(ValueError, match=r"\(now a ba ba ba ba ba\).*choose a new folder, or remove this one$"):
        embed_set(faces, undisturbed, broken_line, batch=BATCH)
    (copied / "p0" / "000.png").rename(copied / "p0" / "zzz.png")
    with pytest.raises(ValueError, match="another job: data"):
        embed_set(copied, undisturbed, same, batch=BATCH)
    with pytest.raises(ValueError, match="not in parts"):
        embed_set(faces, undisturbed, same, batch=BATCH, part=Part(number=1, of=2))


def test_other_faces_under_the_same_names_are_noticed(copied, tmp_path):
    with pytest.raises(Ended):
        embed_set(copied, tmp_path / "out", mixing_embedder(calls=CALLS + 1), batch=BATCH)
    (copied / "p0" / "003.png").write_bytes((copied / "p0" / "004.png").read_bytes())
    with pytest.raises(ValueError, match="features of other images"):
        embed_set(copied, tmp_path / "out", mixing_embedder(), batch=BATCH)


def test_two_runs_do_not_share_a_folder(faces, undisturbed):
    with (undisturbed / "journal.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process"):
            embed_set(faces, undisturbed, mixing_embedder(), batch=BATCH)


def test_a_folder_with_something_else_is_left_alone(faces, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"holds something else \(thesis\.tex\)"):
        embed_set(faces, tmp_path, mixing_embedder())
    assert tree(tmp_path) == {"thesis.tex": b"x"}


def test_faces_made_otherwise_are_refused(copied, tmp_path):
    write_faces(tmp_path / "large", people=1, photos=2, size=(250, 250))
    with pytest.raises(ContractMismatch, match="data align"):
        embed_set(tmp_path / "large", tmp_path / "out", mixing_embedder())
    said = []
    embed_set(copied, tmp_path / "out", mixing_embedder(), say=said.append)
    assert "by their size alone" in said[0]
    write_manifest(copied, SetManifest(alignment=Alignment(template="matlab"), made_by="test"))
    with pytest.raises(ContractMismatch, match="template matlab"):
        embed_set(copied, tmp_path / "again", mixing_embedder())


def test_a_feature_that_is_not_finite_is_never_written(faces, tmp_path):
    embedder = Embedder(lambda inputs: np.where(inputs[:, :, 0, 0] > 0.9, np.nan, 1), Card())
    with pytest.raises(JobFailed, match=r"p\d/\d+\.png is not finite"):
        embed_set(faces, tmp_path / "out", embedder)


def test_a_damaged_journal_and_lost_rows_are_clear_errors(faces, tmp_path):
    with pytest.raises(Ended):
        embed_set(faces, tmp_path / "out", mixing_embedder(calls=CALLS + 1), batch=BATCH)
    (tmp_path / "out" / "features.npy.part").unlink()
    with pytest.raises(DataFormatError, match="rows were in it"):
        embed_set(faces, tmp_path / "out", mixing_embedder(), batch=BATCH)
    (tmp_path / "out" / "journal.jsonl").write_text("[1]\n{}\n")
    with pytest.raises(DataFormatError, match="damaged; remove"):
        embed_set(faces, tmp_path / "out", mixing_embedder(), batch=BATCH)


@pytest.mark.parametrize(
    "change",
    [{"rows": -9999}, {"rows": 31}, {"rows": 10**12}, {"unreadable": {"99": "x"}}, {"unreadable": {"-1": "x"}}],
    ids=str,
)
def test_a_journal_that_does_not_add_up_is_refused(faces, tmp_path, change):
    with pytest.raises(Ended):
        embed_set(faces, tmp_path / "out", mixing_embedder(calls=CALLS + 1), batch=BATCH)
    journal = tmp_path / "out" / "journal.jsonl"
    job, chunk = journal.read_text().splitlines()
    journal.write_text(f"{job}\n{json.dumps(json.loads(chunk) | change)}\n")
    with pytest.raises(DataFormatError, match=r"journal\.jsonl: changed or damaged; remove"):
        embed_set(faces, tmp_path / "out", mixing_embedder(), batch=BATCH, missing="skip")
