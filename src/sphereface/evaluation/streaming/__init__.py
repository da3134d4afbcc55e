"""Scores of more pairs than memory holds."""
