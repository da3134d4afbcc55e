"""The exceptions that a caller may want to catch."""


class SphereFaceError(Exception):
    """Base of all errors that a program may handle; its text is one line that says what came and the way out."""


class ModelFileError(SphereFaceError, ValueError):
    """A file that is no model of ours, or a broken one."""


class ContractMismatch(SphereFaceError, ValueError):
    """Faces or features made in one way meet a model that wants another."""


class UnreadableImage(SphereFaceError, ValueError):
    """Bytes that are no image, a damaged one, or one over the limits."""


class NoFaceFound(SphereFaceError, ValueError):
    """A photo in which no face was found where one is needed."""


class JobFailed(SphereFaceError):
    """A job that ran to its end and did not reach what was asked; what it made is kept."""


class DataFormatError(SphereFaceError, ValueError):
    """A list, record file or shard that does not hold what its format says; the text names the line or place."""
