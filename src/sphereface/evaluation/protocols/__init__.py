"""The protocols, one a file: LFW, YTF, MegaFace, IJB, your own people."""
