"""The project's own experiments, beside those of the paper: their pages as results."""

import json
from collections.abc import Mapping
from typing import Any

from sphereface.experiments import difficulty as synthetic_difficulty
from sphereface.experiments import openset
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.planted_bias import FULL as PLANTED
from sphereface.experiments.planted_bias import QUICK as PLANTED_TINY
from sphereface.experiments.planted_bias import run_planted
from sphereface.experiments.planted_bias_page import as_markdown as planted_page
from sphereface.experiments.real_faces import FULL as FACES
from sphereface.experiments.real_faces import QUICK as FACES_TINY
from sphereface.experiments.real_faces import compare
from sphereface.experiments.real_faces_page import as_markdown as faces_page
from sphereface.experiments.study import as_markdown as study_page
from sphereface.experiments.study import run_study
from sphereface.progress import spoken


def synthetic(setting: Setting) -> Result:
    """A-Softmax against softmax and others on synthetic faces."""
    tiny = setting.scale == "tiny"
    study = run_study(
        openset.TINY if tiny else openset.FULL, workers=setting.jobs, rounds=20 if tiny else 500, say=setting.say
    )
    return from_page("synthetic", setting, study_page(study), study.as_json())


def difficulty(setting: Setting) -> Result:
    """The accuracy of softmax on synthetic faces."""
    scale = openset.TINY if setting.scale == "tiny" else openset.FULL
    found = synthetic_difficulty.run_difficulty(scale, workers=setting.jobs, say=setting.say)
    text = f"Softmax: training accuracy {found.training_accuracy:.1%}, verification {found.verification_accuracy:.1%}."
    return from_page("difficulty", setting, text, found._asdict())


def real_faces(setting: Setting) -> Result:
    """Softmax against A-Softmax on real faces, where a folder with them is given."""
    given = [path for path in setting.data.faces if (path / "lfw-dev").is_dir()]
    if not given:
        text = "Not run: it needs real faces: --faces, a folder with train/, lfw-dev/ and the lists of view 1."
        return from_page("real-faces", setting, text, {})
    plan = FACES_TINY if setting.scale == "tiny" else FACES
    done = compare(given[0], setting.runs / "real-faces", plan, jobs=setting.jobs, say=setting.say)
    return from_page("real-faces", setting, faces_page(done), done.as_json())


def planted_bias(setting: Setting) -> Result:
    """Train with few people of one of two groups, and look for that group in the report of groups."""
    plan = PLANTED_TINY if setting.scale == "tiny" else PLANTED
    done = run_planted(
        plan, setting.runs / f"planted-bias-{setting.scale}", workers=setting.jobs, begin=spoken(setting.say)
    )
    return from_page("planted-bias", setting, planted_page(done), done.as_json())


def from_page(name: str, setting: Setting, page: str, numbers: Mapping[str, Any]) -> Result:
    """A result from a page in Markdown: its tables, its paragraphs as findings, and the page as a file."""
    title = CATALOGUE[name].caption.removeprefix("Beyond the paper: ")
    result = Result(name, title, setting.scale, numbers=json.loads(json.dumps(numbers)))
    heading = title
    for block in page.strip().split("\n\n"):
        if block.startswith("#"):
            heading = block.lstrip("# ")
        elif block.startswith("|"):
            head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
            stamped = [Row(cells, setting.scale) for cells in rows]
            result.tables.append(Table(f"table{len(result.tables) + 1}", heading, head, stamped))
        else:
            result.findings.append(" ".join(block.replace("**", "").split()))
    if page.startswith("#"):
        result.pages[f"{name}.md"] = page
    return result
