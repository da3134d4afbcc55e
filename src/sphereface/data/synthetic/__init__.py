"""Synthetic faces, and sets of them in the shape of published ones."""
