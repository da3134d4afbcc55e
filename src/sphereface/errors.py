"""The exceptions that a caller may want to catch."""

from dataclasses import dataclass
from typing import Any


class SphereFaceError(Exception):
    """Base of all errors that a program may handle; its text is one line that says what came and the way out."""


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
    """Something that the user can mend: a wrong argument, file, or combination of them.

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
    """A file that is no model of ours, or a broken one."""


class ContractMismatch(UserError):
    """Faces or features made in one way meet a model that wants another."""


class UnreadableImage(UserError):
    """An image that cannot be read: no image, a damaged one, one over the limits, or none at that path."""

    def __init__(self, path: object, reason: object, *more: object) -> None:
        super().__init__(path, ": ", reason, *more)
        self.path = str(path)
        self.reason = "".join(map(str, (reason, *more)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, *self.parts[2:])  # the default would pass the whole text as the path


class NoFaceFound(UserError):
    """A photo without a face where one is needed."""


class DataFormatError(UserError):
    """A list, record file or shard that does not hold what its format says; the text names the line or place."""


class BadFeature(DataFormatError):
    """A feature that has no direction: zeros, or not finite; `what` it belongs to: `image`, `probe`, `distractor`."""

    def __init__(self, what: str, *parts: object) -> None:
        super().__init__(*parts)
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, *self.parts)


class JobFailed(SphereFaceError):
    """A job that ran to its end and did not reach what was asked; what it made is kept."""
