"""Where faces come from."""
