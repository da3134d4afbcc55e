"""Sets of faces in every format: folder, rec, bin, tar, zip, list, MNIST."""
