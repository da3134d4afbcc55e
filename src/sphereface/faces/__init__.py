"""From photo to face: decode, detect, align, judge; all of it without torch."""
