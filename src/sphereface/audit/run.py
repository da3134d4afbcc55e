"""An audit of files, with its results as files."""

from pathlib import Path

from sphereface.audit.findings import FEW, Audit, audit_faces
from sphereface.audit.page import write_page
from sphereface.audit.summary import markdown
from sphereface.choices import Missing
from sphereface.contract import Alignment
from sphereface.data.formats.sets import open_set
from sphereface.data.manifest import require_faces
from sphereface.embed.embedder import Embedder
from sphereface.progress import Begin, unseen


def audit_path(
    faces: Path,
    *,
    against: Path | None = None,
    model: str | Path | None = None,
    few: int = FEW,
    missing: Missing = "skip",
    out: Path,
    begin: Begin = unseen,
) -> Audit:
    """Audit a set of faces and write `report.html`, `audit.md`, `audit.json` and `exclude.txt`."""
    embedder = Embedder.load(model) if model else None
    wanted = embedder.card.preprocessing.alignment if embedder else Alignment()
    ours = open_set(faces)
    theirs = open_set(against) if against else None
    notes = [require_faces(faces, ours, wanted)]
    if against and theirs:
        notes.append(require_faces(against, theirs, wanted))
    found = audit_faces(ours, against=theirs, embedder=embedder, few=few, missing=missing, begin=begin)
    found = found.model_copy(update={"notes": (*found.notes, *(note for note in notes if note))})
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_text(found.model_dump_json(indent=2) + "\n")
    (out / "exclude.txt").write_text("".join(f"{line}\n" for line in found.exclude()))
    command = f"sphereface data audit {faces.name}" + (f" --against {against.name}" if against else "")
    (out / "audit.md").write_text(markdown(found, command + (f" --model {Path(model).name}" if model else "")))
    write_page(found, ours, theirs, out / "report.html")
    return found
