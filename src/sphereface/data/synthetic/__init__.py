"""Synthetic faces, and sets of them in the form of published sets."""
