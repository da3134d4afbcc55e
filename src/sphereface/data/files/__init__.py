"""Files: read at any place, written whole or not at all, by several processes."""
