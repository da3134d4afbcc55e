"""Checkpoints: written together, found, checked and read."""
