"""Sets of photos and faces: formats, test lists, alignment and synthetic faces."""
