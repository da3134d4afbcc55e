"""Error rates of groups of people at one threshold."""
