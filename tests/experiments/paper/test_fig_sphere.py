"""Figure 5: angles of six people by m; and its page, which a browser opens, turns and plays without a request."""

import base64
import itertools
import json
import math
import re

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.experiments.loop import Budget
from sphereface.experiments.paper import fig_sphere, toy
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.fig_sphere import PERSON, facing, measure
from sphereface.experiments.paper.material import Drawn
from sphereface.experiments.paper.result import read_result
from sphereface.experiments.paper.sphere_page import quantised, sphere_page
from sphereface.experiments.paper.toy import Plan, Trained, pair_angles
from tests.reports.browser import CHROMIUM, complaints, needs_chromium

PEOPLE, PHOTOS, SHOWN, SNAPSHOTS = 6, 9, 7, 5
AXES = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0], [0, 0, -1]], float)


def made(scatter: float) -> Trained:
    """A run that ends with six people around the axes, the closer to them the smaller `scatter` is."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(PEOPLE), PHOTOS)
    start = np.random.default_rng(99).normal(size=(len(labels), 3))
    end = AXES[labels] + scatter * rng.normal(size=start.shape)
    shares = np.linspace(0, 1, SNAPSHOTS)[:, None, None]
    path = (1 - shares) * start + shares * end
    shown = np.flatnonzero(np.arange(len(labels)) % PHOTOS < SHOWN)
    weights = np.stack([AXES + share * 0.1 for share in np.linspace(1, 0, SNAPSHOTS)])
    return Trained(
        features=(4 * end).astype(np.float32), labels=labels, weight=weights[-1].astype(np.float32),
        bias=np.zeros(PEOPLE, np.float32), lambda_=np.array(5.0), losses=np.zeros(20),
        steps=np.array([0, 2, 5, 10, 20]), shown=shown, history=(4 * path[:, shown]).astype(np.float32),
        weights=weights.astype(np.float32),
    )  # fmt: skip


RUNS = {m: made(scatter) for m, scatter in {1: 0.5, 2: 0.35, 3: 0.2, 4: 0.1}.items()}
MEASURED = {m: [measure(run)] for m, run in RUNS.items()}


def test_distances_are_those_of_each_pair_of_people():
    found, run = MEASURED[1][0], RUNS[1]
    unit = unit_rows(run.features)
    for (one, other), distance in zip(itertools.combinations(range(PEOPLE), 2), found.distances, strict=True):
        a, b = unit[run.labels == one], unit[run.labels == other]
        same = [math.acos(min(1, x @ y)) for some in (a, b) for x, y in itertools.combinations(some, 2)]
        different = [math.acos(x @ y) for x in a for y in b]
        assert distance == pytest.approx(math.degrees(np.mean(different) - np.mean(same)))
    assert len(found.distances) == 15


def test_findings_follow_the_numbers():
    backwards = {m: MEASURED[5 - m] for m in MEASURED}
    gaps = {m: some[0].everyone.gap for m, some in MEASURED.items()}
    holds = ", ".join(str(m) for m, gap in gaps.items() if gap > 0)
    assert gaps[4] > 0 > gaps[1]
    assert f"it holds for m = {holds}." in fig_sphere._criterion(MEASURED)
    assert "it holds for no m here" in fig_sphere._criterion(dict.fromkeys(MEASURED, MEASURED[1]))
    assert "as the paper says, each larger m separates them more" in fig_sphere._of_two(MEASURED)
    assert "does not hold here" in fig_sphere._of_two(backwards)
    mixed = {1: MEASURED[1], 2: MEASURED[3], 3: MEASURED[2], 4: MEASURED[4]}
    assert "from m = 1 to m = 4, not at each step" in fig_sphere._of_two(mixed)
    gained = np.array(MEASURED[4][0].distances) - MEASURED[1][0].distances
    assert f"it grows in {(gained > 0).sum()} of 15, by {gained.mean():.1f}°" in fig_sphere._of_all(MEASURED)


def test_the_view_is_a_rotation_with_the_first_two_people_in_front():
    for seed in range(5):
        weights = unit_rows(np.random.default_rng(seed).normal(size=(PEOPLE, 3)))
        view = facing([weights, weights])
        np.testing.assert_allclose(view @ view.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(view) == pytest.approx(1)
        if weights[0] @ weights[1] > -0.3:
            assert ((weights @ view[2])[:2] > 0.1).all()


def test_labels_move_apart_and_no_further_than_they_must():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.uniform(-1, 1, (4, 2)) * [[1, 1], [0.1, 0.1], [0.1, 0.1], [0, 0]], [[9.0, 9.0]]])
    moved = fig_sphere.spaced(places, 0.2)
    for a, b in itertools.combinations(moved, 2):
        assert np.linalg.norm(a - b) > 0.2 - 1e-6
    assert (moved[-1] == [9, 9]).all()
    assert np.linalg.norm(moved - places, axis=1).max() < 0.4
    twins = fig_sphere.spaced(np.zeros((2, 2)), 0.2)
    assert np.linalg.norm(twins[0] - twins[1]) == pytest.approx(0.2)


def test_directions_survive_quantisation_to_a_few_thousandths_of_a_degree():
    rows = np.random.default_rng(0).normal(size=(4, 50, 3)) * 30
    back = np.frombuffer(base64.b64decode(quantised(rows)), "<i2").reshape(-1, 3) / 32_767
    cross = np.linalg.norm(np.cross(back, unit_rows(rows.reshape(-1, 3))), axis=1)
    assert np.degrees(cross.max()) < 0.003


def page_of(about: str = "About this page.") -> str:
    return sphere_page(RUNS, view=facing([AXES]), colours=PERSON, about=about)


def test_a_page_fetches_nothing_and_no_text_ends_its_script():
    page = page_of("</script><img src=http://x.example>")
    assert page.count("</script>") == 2
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    assert "default-src 'none'" in page
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    found = json.loads(text.group(1))
    assert found["about"] == "</script><img src=http://x.example>"
    assert found["photos"] == [SHOWN] * PEOPLE
    assert found["steps"] == [0, 2, 5, 10, 20]
    assert len(base64.b64decode(found["runs"]["3"]["points"])) == SNAPSHOTS * PEOPLE * SHOWN * 3 * 2


def test_a_run_has_tables_a_figure_and_a_page(setting, monkeypatch):
    plan = Plan(Budget(steps=3, batch=8, lr=0.01), width=0.0625, photos=6, shown=3, snapshots=3)
    monkeypatch.setitem(toy.PLANS, "tiny", plan)
    monkeypatch.setattr(toy, "SYNTHETIC", Drawn(6, 6, 0))
    result = fig_sphere.run(setting)
    assert result.title in CATALOGUE[result.id].caption
    assert [[row.cells[0] for row in table.rows] for table in result.tables] == [["1", "2", "3", "4"]] * 2
    assert {row.stamp for table in result.tables for row in table.rows} == {"tiny"}
    for m, row in zip("1234", result.tables[0].rows, strict=True):
        found = result.numbers[m][0]
        assert row.cells[1:4] == [f"{value:.0f}°" for value in (found["same"], found["different"],
                                                                found["different"] - found["same"])]  # fmt: skip
    back = read_result(result.write(setting.out))
    assert back.figures[0].picture.pdf.startswith(b"%PDF")
    assert back.figures[0].picture.light != back.figures[0].picture.dark
    assert "18 are shown" in back.pages["sphere.html"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "sphere.html"
    path.write_text(page_of(), encoding="utf-8")
    return path


@needs_chromium
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1200)])
def test_chromium_opens_the_page_without_an_error_or_a_request(page, scheme, width):
    assert complaints(page, scheme=scheme, width=width) == []


class Reader:
    """A reader of the page: what they see, and what they do with it."""

    def __init__(self, tab):
        self.tab = tab

    def sees(self, what: str = "sphere") -> str:
        """The pixels of a canvas, after two frames."""
        self.rests(2)
        return self.tab.evaluate(f"document.getElementById('{what}').toDataURL()")

    def rests(self, frames: int) -> None:
        self.tab.evaluate(
            "count => new Promise(done => { const next = () => count-- > 0 ? requestAnimationFrame(next) : done();"
            " next(); })",
            frames,
        )

    def reads(self, what: str = "says") -> str:
        self.rests(2)
        return self.tab.text_content(f"#{what}")

    def view(self) -> np.ndarray:
        """The rotation that the page draws with, three rows: to the right, up, to the viewer."""
        return np.array(self.tab.evaluate("state.view")).reshape(3, 3)

    def presses(self, *keys: str) -> None:
        for key in keys:
            self.tab.keyboard.press(key)

    def tabs_to(self, name: str) -> None:
        """Press Tab until the element with an ID or a name has the focus."""
        for _ in range(40):
            self.tab.keyboard.press("Tab")
            if self.tab.evaluate("document.activeElement.id || document.activeElement.name") == name:
                return
        raise AssertionError(f"{name} cannot be reached by Tab")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def reader(browser, page):
    """A reader who prefers no motion, so that a change is there at once; an error on the page fails the test."""
    errors: list[str] = []
    context = browser.new_context(has_touch=True, reduced_motion="reduce", viewport={"width": 900, "height": 800})
    tab = context.new_page()
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri())
    yield Reader(tab)
    context.close()
    assert errors == []


def moved(before: np.ndarray, after: np.ndarray) -> list[float]:
    """Where the point that faced the viewer went: to the right, and up."""
    np.testing.assert_allclose(after @ after.T, np.eye(3), atol=1e-6)  # still a rotation
    return (after @ before[2])[:2].tolist()


@needs_chromium
def test_the_sphere_turns_by_mouse_and_comes_back(reader):
    before, view = reader.sees(), reader.view()
    box = reader.tab.locator("#sphere").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    reader.tab.mouse.move(x, y)
    reader.tab.mouse.down()
    reader.tab.mouse.move(x + 60, y + 20, steps=3)
    reader.tab.mouse.up()
    turned = reader.sees()
    assert turned != before
    right, up = moved(view, reader.view())
    assert right == pytest.approx(math.sin(120 / box["width"]), abs=0.02)
    assert up == pytest.approx(-math.sin(40 / box["width"]), abs=0.02)
    reader.tab.mouse.move(x - 90, y)  # the button is up
    assert reader.sees() == turned
    reader.tab.click("#reset")
    assert reader.sees() == before


@needs_chromium
def test_the_sphere_turns_by_touch(reader):
    before, view = reader.sees(), reader.view()
    box = reader.tab.locator("#sphere").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = reader.tab.context.new_cdp_session(reader.tab)
    finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for move in (10, 30, 60):
        finger.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y + move}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    turned = pytest.approx([0, -math.sin(120 / box["width"])], abs=0.02)
    for _ in range(100):  # a browser passes touches on when it has time
        if moved(view, reader.view()) == turned:
            break
        reader.tab.wait_for_timeout(50)
    assert moved(view, reader.view()) == turned
    assert reader.sees() != before
    assert reader.tab.evaluate("scrollY") == 0


@needs_chromium
def test_everything_works_by_keyboard(reader):
    first = reader.sees()
    reader.tabs_to("sphere")
    view, far = reader.view(), math.sin(0.12)
    for key, way in {
        "ArrowLeft": [-far, 0],
        "ArrowRight": [far, 0],
        "ArrowUp": [0, far],
        "ArrowDown": [0, -far],
    }.items():
        reader.presses(key)
        assert reader.sees() != first
        assert moved(view, reader.view()) == pytest.approx(way, abs=1e-4)
        reader.presses("Home")
        assert reader.sees() == first
    assert reader.tab.evaluate("document.documentElement.scrollHeight > innerHeight && scrollY === 0")
    reader.tabs_to("m")
    reader.presses("ArrowLeft")
    assert reader.reads().startswith("m = 3, step 20 of 20")
    assert reader.sees() != first
    reader.tabs_to("step")
    reader.presses("Home")
    assert reader.reads().startswith("m = 3, step 0 of 20")
    reader.presses("ArrowRight", "ArrowRight")
    assert reader.reads("at") == "step 5 of 20"
    reader.tabs_to("pairs")
    reader.presses("ArrowRight")
    assert "photos of two people" in reader.reads()
    people = reader.sees()
    reader.tab.keyboard.press("Tab")
    reader.presses("Enter")
    assert reader.sees() != people


@needs_chromium
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_page_says_the_angles_of_the_chosen_m_and_step(reader, m):
    reader.tab.locator(f"input[name=m][value='{m}']").check(force=True)
    histograms = set()
    for place, step in enumerate(RUNS[m].steps):
        reader.tab.locator("#step").fill(str(place))
        for choice, people in (("two", (0, 1)), ("all", None)):
            reader.tab.locator(f"input[name=pairs][value={choice}]").check(force=True)
            labels = RUNS[m].labels[RUNS[m].shown]
            angles = pair_angles(RUNS[m].history[place], labels, people)
            said = reader.reads()
            assert f"step {step} of 20" in said
            assert f"are {math.degrees(angles.same.mean()):.0f}° apart on average" in said
            assert f" {math.degrees(angles.different.mean()):.0f}°. The two" in said
            nearest = (unit_rows(RUNS[m].history[place]) @ unit_rows(RUNS[m].weights[place]).T).argmax(1)
            assert f"the right one for {100 * (nearest == labels).mean():.0f} %" in said
            bins = np.arange(0, 181, 4)
            heights = [np.histogram(np.degrees(each), bins)[0] / len(each) for each in (angles.same, angles.different)]
            shared = np.minimum(*heights).sum()
            assert f"share {100 * shared:.{int(0 < shared < 0.1)}f} % of their area" in said
            histograms.add(reader.sees("histogram"))
    assert len(histograms) == 2 * len(RUNS[m].steps)


@needs_chromium
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_training_plays_from_its_beginning_to_its_end_and_stops(browser, page, motion):
    context = browser.new_context(reduced_motion=motion, viewport={"width": 400, "height": 600})
    tab = context.new_page()
    tab.clock.install()  # a frame of the page lasts as long as the test says
    tab.goto(page.as_uri())
    tab.clock.fast_forward(100)
    look = "['at', 'play'].map(id => document.getElementById(id).textContent)"
    pixels = "document.getElementById('sphere').toDataURL()"
    last = tab.evaluate(pixels)
    tab.click("#play")
    steps, labels, pictures = [], [], set()
    for frame in range(75):
        tab.clock.fast_forward(100)
        step, label = tab.evaluate(look)
        steps.append(int(step.split()[1]))
        labels.append(label)
        if frame % 5 == 0:
            pictures.add(tab.evaluate(pixels))
    assert list(dict.fromkeys(steps)) == [0, 2, 5, 10, 20]
    assert list(dict.fromkeys(labels)) == ["Pause", "Play"]
    assert tab.evaluate(pixels) == last
    assert tab.input_value("#step") == "4"
    assert (len(pictures) == SNAPSHOTS) == (motion == "reduce")  # with motion, also between two snapshots
    tab.click("#play")
    for _ in range(25):
        tab.clock.fast_forward(100)
    tab.click("#play")
    tab.clock.fast_forward(100)
    paused = tab.evaluate(look)
    for _ in range(5):
        tab.clock.fast_forward(1_000)
    assert tab.evaluate(look) == paused
    assert paused[0] in ("step 2 of 20", "step 5 of 20")
    context.close()


@needs_chromium
def test_the_sphere_spins_until_it_is_told_to_stop(reader):
    view, button = reader.view(), reader.tab.locator("#spin")
    button.click()
    reader.rests(5)
    assert button.get_attribute("aria-pressed") == "true"
    right, up = moved(view, reader.view())
    assert right > 0
    assert up == pytest.approx(0, abs=1e-6)
    button.click()
    stopped = reader.sees()
    reader.rests(5)
    assert reader.sees() == stopped


@needs_chromium
def test_a_hidden_person_is_gone_and_comes_back(reader):
    before, button = reader.sees(), reader.tab.locator("#people button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert reader.sees() != before
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert reader.sees() == before


@needs_chromium
def test_the_page_follows_a_change_of_the_theme_and_has_names_for_all_controls(reader):
    light = reader.sees()
    reader.tab.emulate_media(color_scheme="dark")
    assert reader.sees() != light
    nameless = reader.tab.evaluate(
        "[...document.querySelectorAll('button, input, canvas')].filter(each => !each.ariaLabel && !each.textContent "
        "&& !(each.labels && [...each.labels].some(label => label.textContent)) && each.ariaHidden !== 'true').length"
    )
    assert nameless == 0
