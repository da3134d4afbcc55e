"""Enrolled people: a store, which is the truth, and an index derived from it."""
