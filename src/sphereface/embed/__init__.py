"""Faces to features."""
