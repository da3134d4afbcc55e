"""The options of a loss, held against its own signature, so that what it does not take is said before it is built."""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sphereface.losses.annealing import Annealing
from sphereface.losses.classifier import Mode


def options_of(build: Callable[..., object]) -> dict[str, Any]:
    """The options that a loss takes, by name, with the type of each."""
    hints = get_type_hints(build.__init__ if inspect.isclass(build) else build)
    named = [name for name in inspect.signature(build).parameters if name not in ("features", "classes")]
    modes = get_type_hints(Mode) if "mode" in named else {}
    return {name: hints[name] for name in named if name != "mode"} | modes


def check_options(loss: str, build: Callable[..., object], options: Mapping[str, Any]) -> None:
    """Raise unless a loss has all these options, and each is of its type."""
    known = options_of(build)
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"{loss} has no option {name!r}; {nearest(name, known, 'it takes')}")
        if not accepts(value, known[name]):
            raise ValueError(f"{name} is {value!r}; {loss} takes {in_words(known[name])}")


def accepts(value: object, kind: Any) -> bool:
    """Whether a value is of a type, as people mean it: 4.0 is a whole number, and True is none."""
    match get_origin(kind) or kind:
        case origin if origin is Literal:
            return value in get_args(kind)
        case origin if origin is UnionType:
            return any(accepts(value, each) for each in get_args(kind))
        case origin if origin is tuple:
            kinds = get_args(kind)
            return isinstance(value, tuple | list) and len(value) == len(kinds) and all(map(accepts, value, kinds))
        case origin if origin in (int, float):
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                return False
            # All real options are margins, weights, lengths or exponents: none is negative.
            return float(value).is_integer() if kind is int else float(value) >= 0
    return isinstance(value, kind)


def in_words(kind: Any) -> str:
    """A type, for people to read.

    >>> in_words(int | None)
    'a whole number or None'
    """
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is UnionType:
        return " or ".join(in_words(each) for each in get_args(kind))
    words = {int: "a whole number", float: "a number of at least 0", bool: "true or false", NoneType: "None"}
    return words.get(kind) or ("an Annealing" if kind is Annealing else f"({', '.join(map(in_words, get_args(kind)))})")


def nearest(name: str, known: Iterable[str], all_of_them: str = "known are") -> str:
    """The known names that look like an unknown one, or all of them.

    >>> nearest("sampel", ["chunk", "sample"])
    'did you mean sample?'
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"{all_of_them} {', '.join(known)}"
