"""Faults of a data set: copies, wrong labels, one person under two names, people of a test set."""

from sphereface.audit.findings import Audit, audit_faces
from sphereface.audit.run import audit_path

__all__ = ["Audit", "audit_faces", "audit_path"]
