"""Test lists: pairs, videos, MegaFace, IJB, attributes, landmarks."""
