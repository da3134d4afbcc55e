"""The exceptions that a caller may want to catch."""

from dataclasses import dataclass
from typing import Any


class SphereFaceError(Exception):
    """Base of all errors that a program may handle; the text is one line: what came, what was wanted, what to do."""


@dataclass(frozen=True)
class Setting:
    """A setting that an error suggests: `missing="skip"` in Python, `--missing skip` on the command line."""

    name: str
    value: str

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    @property
    def option(self) -> str:
        """The setting as typed on the command line."""
        return f"--{self.name.replace('_', '-')} {self.value.replace(' ', '-')}"


class UserError(SphereFaceError, ValueError):
    """An error that the user can correct: a wrong argument, file, or combination of them.

    The text may be given in parts, some of them a `Setting`.

    >>> str(UserError("2 pairs have no face; leave them out with ", Setting("missing", "skip")))
    '2 pairs have no face; leave them out with missing="skip"'
    """

    def __init__(self, *parts: object) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts

    @property
    def as_typed(self) -> str:
        """The text with each setting as a command-line option."""
        return "".join(part.option if isinstance(part, Setting) else str(part) for part in self.parts)


class ModelFileError(UserError):
    """A file that is not a supported model, or is damaged."""


class ContractMismatch(UserError):
    """Faces or features that were made with other settings than the model needs."""


class UnreadableImage(UserError):
    """An image that cannot be read: missing, damaged, over the limits, or not an image file."""

    def __init__(self, path: object, reason: object, *more: object) -> None:
        super().__init__(path, ": ", reason, *more)
        self.path = str(path)
        self.reason = "".join(map(str, (reason, *more)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, *self.parts[2:])  # the default would pass the whole text as the path


class NoFaceFound(UserError):
    """A photo without a face where one is needed."""


class DataFormatError(UserError):
    """A list, record file, archive or feature store that breaks its format; the text names the line or place."""


class BadFeature(DataFormatError):
    """A feature without a direction: zeros, or not finite; `what` is its kind: `image`, `probe`, `distractor`."""

    def __init__(self, what: str, *parts: object) -> None:
        super().__init__(*parts)
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, *self.parts)


class GalleryError(UserError):
    """A gallery that cannot be used as asked: another file, a later version, a wrong key, an unknown name."""


class JobFailed(SphereFaceError):
    """A job that finished without the required result; its output files are kept."""
