"""Figures and one-file reports. matplotlib is imported only when a figure is drawn."""
