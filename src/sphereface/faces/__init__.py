"""From photo to face, without torch: decode, detect, align, measure quality."""
