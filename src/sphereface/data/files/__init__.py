"""Files: read by offset, written atomically, shared by several processes."""
