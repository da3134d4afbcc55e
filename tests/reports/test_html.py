"""A report is one file that any browser opens, light or dark, large or small."""

import re

import cv2
import numpy as np
import pytest

from sphereface.reports import figures
from sphereface.reports.html import Report
from tests.reports.browser import complaints, needs_chromium


def sample() -> Report:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 10)
    points = rng.normal(size=(60, 3)).astype(np.float32)
    report = Report("Title <b>", "lead & more")
    report.text("careful", note=True)
    report.figure(figures.spheres({"softmax": points, "A-Softmax": points}, labels), "spheres", wide=True)
    angles = {"softmax": rng.uniform(0, 3, 50), "A-Softmax": rng.uniform(0, 3, 50)}
    report.figure(figures.angle_histograms(angles, angles), "angles", wide=True)
    report.figure(figures.roc_curves({"softmax": (np.linspace(0, 1, 20), np.linspace(0, 1, 20) ** 0.3)}), "roc")
    report.figure(figures.training_curves({"softmax": [3.0, 2.0, 1.0, 0.5]}), "training")
    faces = rng.integers(0, 255, (8, 112, 96, 3)).astype(np.uint8)
    report.figure(figures.contact_sheet(faces, 4, says="eight faces"), "faces")
    report.table(["loss", "accuracy"], [["softmax", "90 %"], ["A-Softmax", "95 %"]], best=[(1, 1)])
    report.code("sphereface demo")
    return report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    sample().write(path)
    return path


def test_a_report_fetches_nothing_and_runs_nothing(page):
    html = page.read_text()
    sources = re.findall(r'(?:src|srcset|href)="([^"]{0,30})', html)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "<script" not in html


def test_text_is_escaped_and_pictures_have_words(page):
    html = page.read_text()
    assert "Title &lt;b&gt;" in html
    assert "lead &amp; more" in html
    assert len(re.findall(r'alt="[^"]{10,}"', html)) == 5


def test_a_report_is_written_whole(page):
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    assert page.read_text().rstrip().endswith("</html>")


def test_every_picture_is_drawn_for_both_themes(page):
    html = page.read_text()
    pairs = re.findall(r'srcset="data:image/png;base64,([^"]+)"><img src="data:image/png;base64,([^"]+)"', html)
    assert len(pairs) == 5
    assert sum(dark != light for dark, light in pairs) == 4  # faces look the same in any light


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_chromium_opens_a_report_without_an_error(page, scheme, width):
    assert complaints(page, scheme=scheme, width=width) == []


def test_a_contact_sheet_shows_every_face_also_of_an_unfinished_row():
    faces = np.stack([np.full((4, 3, 3), shade, np.uint8) for shade in (10, 20, 30, 40, 50)])
    sheet = cv2.imdecode(np.frombuffer(figures.contact_sheet(faces, 3, says="five").light, np.uint8), cv2.IMREAD_COLOR)
    assert sheet.shape == (8, 9, 3)
    assert sheet[::4, ::3, 0].ravel().tolist() == [10, 20, 30, 40, 50, 128]
