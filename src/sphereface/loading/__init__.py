"""Batches for training: a scan before the start, samplers without state, worker processes, resuming in mid-epoch."""

from sphereface.loading.loader import Batch, FaceLoader
from sphereface.loading.ready import ReadyFaces, prepare
from sphereface.loading.samplers import PeoplePhotos, Sampler, Shuffled
from sphereface.loading.scan import Scan, Unreadable, scan
from sphereface.loading.subset import fingerprint, without

__all__ = [
    "Batch",
    "FaceLoader",
    "PeoplePhotos",
    "ReadyFaces",
    "Sampler",
    "Scan",
    "Shuffled",
    "Unreadable",
    "fingerprint",
    "prepare",
    "scan",
    "without",
]
