"""Checkpoints: saving, finding, checking and reading them."""
