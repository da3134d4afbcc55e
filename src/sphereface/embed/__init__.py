"""Faces to features, feature stores and ensembles."""
