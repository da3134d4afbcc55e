"""InsightFace's pair sets, `.bin`: a pickle of (encoded images, two for each pair; whether each pair is one person).

A pickle is a program, so none is run here. A small reader knows the few opcodes of lists, tuples, bytes, numbers and
names. Functions are never looked up: the few names by which Python 2, Python 3 and NumPy write bytes and booleans are
interpreted, and anything else is refused.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from sphereface.data.files.handles import ByteFile
from sphereface.data.files.writing import whole_file
from sphereface.errors import UserError
from sphereface.faces.images import LIMITS

LIMIT = 1 << 31  # bytes of a file; the known sets have about a hundredth of that
STEPS = 5_000_000  # opcodes; two images, a flag and their bookkeeping take six
SHORT = 8  # limit of letters in an array's type, and of its axes: a pickle may repeat both very often


@dataclass(frozen=True)
class PairSet:
    """Encoded images and, for images 2i and 2i + 1, whether they show one person."""

    images: tuple[bytes, ...]
    same: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.images) != 2 * len(self.same):
            raise UserError(f"{len(self.images):,} images for {len(self.same):,} pairs; wanted two for each")

    def __len__(self) -> int:
        return len(self.same)


def read_bin(path: str | Path, *, limit: int = LIMIT, steps: int = STEPS) -> PairSet:
    """The pairs of a `.bin` file, from Python 2 or 3; nothing in the file is run.

    A file of more than `limit` bytes, or a pickle of more than `steps` opcodes, is refused.
    """
    file = ByteFile(path)
    if file.size > limit:
        raise file.wrong(f"{file.size:,} bytes; wanted a set of pairs, of at most {limit:,}")
    data = file.read(0, file.size)
    try:
        return _pair_set(_Reader(data).load(steps))
    except (_Refused, UserError) as problem:
        raise file.wrong(str(problem)) from None
    except LookupError:  # the stack or the memory lacks an opcode's operand
        raise file.wrong("incomplete pickle; copy or download it again") from None


def write_bin(path: str | Path, pairs: PairSet) -> None:
    """Write pairs as InsightFace's own tools do: pickle protocol 2, images as Python 2 strings.

    InsightFace reads it under Python 2 as it is and under Python 3 with `encoding="bytes"`.
    """
    with whole_file(path) as file:
        file.write(b"\x80\x02](")
        for image in pairs.images:
            file.write(b"T" + struct.pack("<i", len(image)) + image)
        flags = b"".join(b"\x88" if same else b"\x89" for same in pairs.same)
        file.write(b"e](" + flags + b"e\x86.")


class _Refused(Exception):
    """The reason to refuse a pickle; `read_bin` adds its path."""


class _Function(Enum):
    """Functions that a pickle may name; `_Reader.reduce` interprets them, and none is called."""

    ENCODE = auto()  # bytes, as Python 3 writes them for Python 2: text with a letter for each byte
    ARRAY = auto()
    NEW_ARRAY = auto()
    ARRAY_OF_BYTES = auto()
    SCALAR = auto()
    KIND = auto()


_NUMPY_CORES = ("numpy.core", "numpy._core")  # before and since NumPy 2
_FUNCTIONS = {
    ("_codecs", "encode"): _Function.ENCODE,
    ("numpy", "ndarray"): _Function.ARRAY,
    ("numpy", "dtype"): _Function.KIND,
    **{(f"{core}.multiarray", "_reconstruct"): _Function.NEW_ARRAY for core in _NUMPY_CORES},
    **{(f"{core}.multiarray", "scalar"): _Function.SCALAR for core in _NUMPY_CORES},
    **{(f"{core}.numeric", "_frombuffer"): _Function.ARRAY_OF_BYTES for core in _NUMPY_CORES},
}


@dataclass(frozen=True)
class _Kind:
    """A NumPy type by its code: `u1` for bytes, `b1` for booleans."""

    code: str


@dataclass
class _Array:
    """A NumPy array as a pickle describes it."""

    kind: _Kind | None = None
    data: bytes = b""


@dataclass
class _Reader:
    """A stack, a memory, and the opcodes that a pair set needs."""

    data: bytes
    place: int = 0
    made: int = 0  # bytes decoded so far; limited by the file's size, or a short file could fill the memory
    stack: list[object] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memory: dict[int, object] = field(default_factory=dict)

    def load(self, steps: int) -> object:
        """The pickled value."""
        for _ in range(steps):
            opcode = self.take(1)
            if opcode == b".":
                return self.pop()
            if opcode not in _OPCODES:
                found = f"opcode {opcode!r} at {self.place - 1:,}"
                raise _Refused(f"a pickle with {found}, which no pair set needs; refused")
            _OPCODES[opcode](self)
        raise _Refused(f"a pickle of over {steps:,} steps; refused")

    def take(self, length: int) -> bytes:
        if length < 0 or self.place + length > len(self.data):
            raise _Refused("incomplete pickle: cut off; copy or download it again")
        self.place += length
        return self.data[self.place - length : self.place]

    def number(self, length: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(length), "little", signed=signed)

    def line(self) -> str:
        """The next letters up to a line end."""
        end = self.data.find(b"\n", self.place, self.place + 100)
        if end < 0:
            raise _Refused(f"a pickle with an overlong line at {self.place:,}; refused")
        return self.take(end + 1 - self.place)[:-1].decode("latin-1")

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        """The topmost value, if it is above the last mark."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError
        return self.stack.pop()

    def pop_marked(self) -> list[object]:
        """All values above the last mark."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_many(self, count: int) -> tuple[object, ...]:
        """The topmost values, lowest first."""
        return tuple(reversed([self.pop() for _ in range(count)]))

    def text(self, length: int) -> None:
        """Push the next bytes as text."""
        try:
            self.push(str(self.take(length), "utf-8"))
        except UnicodeDecodeError:
            raise _Refused(f"a pickle with broken text before {self.place:,}; refused") from None

    def extend(self, values: Sequence[object]) -> None:
        """Add values to the list on top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise _Refused(f"a pickle that appends to a {type(target).__name__}; refused")
        target.extend(values)

    def truth_or_number(self) -> None:
        """Push a number in letters: `01` and `00` are how old protocols write booleans."""
        letters = self.line()
        if letters not in ("00", "01") and not letters.removeprefix("-").isdecimal():
            raise _Refused(f"a pickle with the number {letters!r}; refused")
        self.push(letters == "01" if letters in ("00", "01") else int(letters))

    def look_up(self, module: object, name: object) -> None:
        """Push the stand-in for a function, if it is one of those that pair sets name."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise _Refused("a pickle that looks up a function without a name; refused, nothing was run")
        if (module, name) not in _FUNCTIONS:
            function = f"{module[:80]}.{name[:80]}"
            raise _Refused(f"a pickle that asks for {function!r}, which no pair set needs; refused, nothing was run")
        self.push(_FUNCTIONS[module, name])

    def reduce(self) -> None:
        """Push the result of a call, for the few known calls."""
        function, arguments = self.pop_many(2)
        match function, arguments:
            case _Function.ENCODE, (str(letters), "latin1" | "latin-1" | b"latin1" | b"latin-1"):
                self.push(self.encode(letters))
            case _Function.KIND, (str(code), *_):
                self.push(_Kind(code))
            case _Function.KIND, (bytes(code), *_) if len(code) <= SHORT:
                self.push(_Kind(code.decode("latin-1")))
            case _Function.NEW_ARRAY, (_Function.ARRAY, *_):
                self.push(_Array())
            case _Function.ARRAY_OF_BYTES, (bytes(data), _Kind() as kind, tuple(shape), *_) if _is_a_row(shape):
                self.push(_Array(kind, data))
            case _Function.SCALAR, (_Kind(code="b1"), bytes(data)) if len(data) == 1:
                self.push(data != b"\0")
            case _:
                raise _Refused("a pickle with a call that no pair set needs; refused, nothing was run")

    def encode(self, letters: str) -> bytes:
        """Text as bytes, one for each letter."""
        self.made += len(letters)
        if self.made > len(self.data):
            raise _Refused("a pickle that expands to more than its own size; refused")
        try:
            return letters.encode("latin-1")
        except UnicodeEncodeError:
            raise _Refused("a pickle with text where bytes should be; refused") from None

    def build(self) -> None:
        """Complete a type or an array."""
        state = self.pop()
        match self.stack[-1], state:
            case _Kind(), tuple():
                return  # byte order and fields, which do not matter for a type of one byte
            case _Array() as array, (int(), tuple(shape), _Kind() as kind, int(), bytes(data)) if _is_a_row(shape):
                array.kind, array.data = kind, data
            case _:
                raise _Refused("a pickle that sets the state of an unknown object; refused, nothing was run")


_OPCODES: dict[bytes, Callable[[_Reader], object]] = {
    b"\x80": lambda to: to.take(1),  # protocol
    b"\x95": lambda to: to.take(8),  # length of a frame
    b"(": lambda to: to.marks.append(len(to.stack)),
    b"N": lambda to: to.push(None),
    b"\x88": lambda to: to.push(True),
    b"\x89": lambda to: to.push(False),
    b"I": _Reader.truth_or_number,
    b"J": lambda to: to.push(to.number(4, signed=True)),
    b"K": lambda to: to.push(to.number(1)),
    b"M": lambda to: to.push(to.number(2)),
    b"\x8a": lambda to: to.push(to.number(to.number(1), signed=True)),
    b"T": lambda to: to.push(to.take(to.number(4, signed=True))),  # a string of Python 2
    b"U": lambda to: to.push(to.take(to.number(1))),
    b"B": lambda to: to.push(to.take(to.number(4))),
    b"C": lambda to: to.push(to.take(to.number(1))),
    b"\x8e": lambda to: to.push(to.take(to.number(8))),
    b"\x96": lambda to: to.push(to.take(to.number(8))),  # the bytes of an array, since protocol 5
    b"X": lambda to: to.text(to.number(4)),
    b"\x8c": lambda to: to.text(to.number(1)),
    b"\x8d": lambda to: to.text(to.number(8)),
    b"]": lambda to: to.push([]),
    b"l": lambda to: to.push(to.pop_marked()),
    b"a": lambda to: to.extend(to.pop_many(1)),
    b"e": lambda to: to.extend(to.pop_marked()),
    b")": lambda to: to.push(()),
    b"t": lambda to: to.push(tuple(to.pop_marked())),
    b"\x85": lambda to: to.push(to.pop_many(1)),
    b"\x86": lambda to: to.push(to.pop_many(2)),
    b"\x87": lambda to: to.push(to.pop_many(3)),
    b"q": lambda to: to.memory.update({to.number(1): to.stack[-1]}),
    b"r": lambda to: to.memory.update({to.number(4): to.stack[-1]}),
    b"\x94": lambda to: to.memory.update({len(to.memory): to.stack[-1]}),
    b"h": lambda to: to.push(to.memory[to.number(1)]),
    b"j": lambda to: to.push(to.memory[to.number(4)]),
    b"c": lambda to: to.look_up(to.line(), to.line()),
    b"\x93": lambda to: to.look_up(*to.pop_many(2)),
    b"R": _Reader.reduce,
    b"b": _Reader.build,
}


def _pair_set(value: object) -> PairSet:
    """The pairs in a pickled value."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise _Refused("a pickle of something else; wanted (images, whether each pair is one person)")
    images = tuple(_image(image) for image in _items(value[0]))
    same = tuple(_flag(flag) for flag in _items(value[1]))
    return PairSet(images, same)


def _is_a_row(shape: tuple[object, ...]) -> bool:
    """True if an array's items are in one row, like the bytes of a file; decoded pixels are not."""
    return len(shape) <= SHORT and sum(1 for length in shape if length != 1) <= 1


def _items(value: object) -> Sequence[object]:
    if isinstance(value, _Array) and value.kind == _Kind("b1"):
        return [byte != 0 for byte in value.data]
    if not isinstance(value, tuple | list):
        raise _Refused(f"a pickle with a {type(value).__name__.strip('_')}; wanted a list of images, one of booleans")
    return value


def _image(value: object) -> bytes:
    data = value.data if isinstance(value, _Array) and value.kind == _Kind("u1") else value
    if not isinstance(data, bytes) or not 0 < len(data) <= LIMITS.bytes:
        raise _Refused("a pickle with something else among its images; wanted the bytes of an image file")
    return data


def _flag(value: object) -> bool:
    if value not in (0, 1):  # True and False are among these
        raise _Refused("a pickle with something else among its booleans; wanted true or false for each pair")
    return bool(value)
