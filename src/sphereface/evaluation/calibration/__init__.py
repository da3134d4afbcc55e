"""Thresholds for stated rates, measured on people."""
