"""Output of a run: log, live line, report, preview."""
