"""Model files as functions on arrays."""
