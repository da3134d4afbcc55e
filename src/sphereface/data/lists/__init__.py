"""Lists of tests: pairs, videos, MegaFace, IJB, attributes, landmarks."""
