"""Pure functions from arrays to results: how pairs, videos, templates and galleries are scored."""
