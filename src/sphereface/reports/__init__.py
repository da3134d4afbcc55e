"""Figures and one-file reports. matplotlib is imported late, so that reports need it only when one is drawn."""
