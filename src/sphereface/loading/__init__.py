"""Batches for training: a scan before the start, stateless samplers, worker processes, resuming in mid-epoch."""

from sphereface.data.reading import Unreadable
from sphereface.loading.loader import Batch, FaceLoader, Replaced
from sphereface.loading.ready import ReadyFaces, prepare
from sphereface.loading.samplers import PeoplePhotos, Sampler, Shuffled
from sphereface.loading.scan import Scan, scan
from sphereface.loading.subset import fingerprint, without

__all__ = [
    "Batch",
    "FaceLoader",
    "PeoplePhotos",
    "ReadyFaces",
    "Replaced",
    "Sampler",
    "Scan",
    "Shuffled",
    "Unreadable",
    "fingerprint",
    "prepare",
    "scan",
    "without",
]
