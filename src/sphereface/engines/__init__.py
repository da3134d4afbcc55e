"""Model file and contract to a function on arrays."""
