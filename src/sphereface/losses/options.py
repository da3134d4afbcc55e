"""Checks of the options of a loss against its signature, before it is built."""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sphereface.errors import UserError
from sphereface.losses.annealing import Annealing
from sphereface.losses.base import is_integer
from sphereface.losses.classifier import Mode


def options_of(build: Callable[..., object]) -> dict[str, Any]:
    """The options that a loss takes: name -> type."""
    hints = get_type_hints(build.__init__ if inspect.isclass(build) else build)
    named = [name for name in inspect.signature(build).parameters if name not in ("features", "classes")]
    modes = get_type_hints(Mode) if "mode" in named else {}
    return {name: hints[name] for name in named if name != "mode"} | modes


def checked_options(loss: str, build: Callable[..., object], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a loss with numbers as Python numbers; an unknown option or a wrong type is an error.

    >>> checked_options("softmax", softmax, {"chunk": np.int64(8)})
    {'chunk': 8}
    """
    known = options_of(build)
    for name, value in options.items():
        if name not in known:
            raise UserError(f"{loss} has no option {name!r}; {nearest(name, known, 'it takes')}")
        if not accepts(value, known[name]):
            raise UserError(f"{name} is {value!r}; {loss} takes {in_words(known[name])}")
    return {name: plain(value) for name, value in options.items()}


def accepts(value: object, kind: Any) -> bool:
    """True if a value is of a type; a real number of any library counts as a float, 8.0 and True are no int."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return value in parts
    if origin is UnionType:
        return any(accepts(value, each) for each in parts)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(accepts, value, parts))
    if origin is int:
        return is_integer(value)
    if origin is float:  # margins, weights, lengths and exponents, all at least 0
        return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) < math.inf
    return isinstance(value, kind)


def plain(value: Any) -> Any:
    """A number of any library, such as NumPy, as a Python number, which every torch operation takes."""
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if is_integer(value):
        return int(value)
    return value if isinstance(value, bool) or not isinstance(value, Real) else float(value)


def in_words(kind: Any) -> str:
    """A type in plain words.

    >>> in_words(int | None)
    'an integer or None'
    """
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is UnionType:
        return " or ".join(in_words(each) for each in get_args(kind))
    words = {int: "an integer", float: "a number of at least 0", bool: "true or false", NoneType: "None"}
    return words.get(kind) or ("an Annealing" if kind is Annealing else f"({', '.join(map(in_words, get_args(kind)))})")


def nearest(name: str, known: Iterable[str], all_of_them: str = "known are") -> str:
    """The known names similar to an unknown one, or else all of them, as a hint.

    >>> nearest("sampel", ["chunk", "sample"])
    'did you mean sample?'
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"{all_of_them} {', '.join(known)}"
