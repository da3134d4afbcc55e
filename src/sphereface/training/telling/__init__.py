"""What a run shows: log, live line, report, preview."""
