"""Photos become faces: what `sphereface data align` runs."""
