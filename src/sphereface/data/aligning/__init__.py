"""From photos to faces: what `sphereface data align` runs."""
