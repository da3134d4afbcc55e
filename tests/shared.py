"""Where real faces lie on machines that have them; a test that wants them skips elsewhere."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
FACES, MODELS = SHARED / "data" / "faces", SHARED / "models"
needs_faces = pytest.mark.skipif(not FACES.is_dir(), reason="needs the real faces of ../shared")
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="needs the models of ../shared")
