"""A form with files, read as it comes: small fields are understood, files pass, all of it byte for byte.

Only one thing is ever changed: the value of `model`, which is left out of what passes and marked there, so that each
attempt puts its own in. What two readers could understand differently is refused, or one model would be priced and
another served. Source: RFC 7578, RFC 2046 (5.1.1).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sluicegate.errors import BadRequest

MAX_FIELD_BYTES = 262_144
MAX_HEAD_BYTES = 16_384
MAX_PARTS = 128
MAX_PADDING_BYTES = 1_024
"""Of white space behind a boundary, which nobody should write and everybody has to read."""
MODEL = "model"
_TYPE = re.compile(rb"multipart/form-data[ \t]*(?=;|\Z)", re.I)
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PARAMETER = re.compile(
    rb';[ \t]*(?:([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\\r\n]|\\[^\r\n])*)"|([^\s;"]+))[ \t]*)?'
)
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*)")
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:([^;\r\n]*)", re.I)
_DISPOSITION = re.compile(rb"form-data[ \t]*(?=;|\Z)", re.I)

_PREAMBLE, _AFTER_DELIMITER, _HEAD, _FIELD, _FILE, _END = range(6)


def boundary_of(content_type: bytes | None) -> bytes:
    """Return what separates a form's parts.

    Raises:
        BadRequest: the body is no form.
    """
    given = content_type or b""
    found = _TYPE.match(given)
    parameters = None if found is None else _parameters(given[found.end() :])
    boundary = None if parameters is None else parameters.get(b"boundary")
    if boundary is None or _BOUNDARY.fullmatch(boundary) is None:
        raise BadRequest("The request's Content-Type must be multipart/form-data with a boundary.")
    return boundary


def content_type(boundary: bytes) -> bytes:
    """Return the value of a form's Content-Type that nobody can read in two ways."""
    quote = b'"' if re.search(rb"[()/:,=? ]", boundary) else b""
    return b"multipart/form-data; boundary=%b%b%b" % (quote, boundary, quote)


def _parameters(text: bytes) -> dict[bytes, bytes] | None:
    """Return a header's parameters, their names in lower case; None where they are malformed or one comes twice."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(text):
        parameter = _PARAMETER.match(text, at)
        if parameter is None:
            return None
        at = parameter.end()
        if parameter[1] is None:
            continue
        name = parameter[1].lower()
        if name in found:
            return None
        found[name] = parameter[3] if parameter[2] is None else parameter[2]
    return found


class Form:
    """One form, from its first byte to its last."""

    __slots__ = (
        "_delimiter",
        "_name",
        "_parts",
        "_rest",
        "_searched",
        "_state",
        "boundary",
        "fields",
        "files",
        "frozen",
        "out",
    )

    def __init__(self, boundary: bytes) -> None:
        self.boundary = boundary
        self._delimiter = b"\r\n--" + boundary
        self._state = _PREAMBLE
        self._rest = bytearray(b"\r\n")  # so that the first delimiter looks like the others; never put out
        self._searched = 0
        """How far what is here was looked through for the end of what it belongs to."""
        self._name = ""
        self._parts = 0
        self.fields: dict[str, list[str]] = {}
        """Values of the fields without a file, in order."""
        self.files: list[str] = []
        """Names of the fields with a file."""
        self.frozen: frozenset[str] = frozenset()
        """Fields that come too late from now on: what they say was needed before."""
        self.out: list[bytes | None] = []
        """What passes, in order; the caller takes and clears it. None stands for the model's value."""

    @property
    def in_file(self) -> bool:
        """Whether a file has begun and not ended."""
        return self._state == _FILE

    @property
    def ended(self) -> bool:
        """Whether the last delimiter has come."""
        return self._state == _END

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadRequest: this is no such form, a field is too long or comes too late, or there are too many.
        """
        first = self._state == _PREAMBLE
        self._rest += data
        while self._step():
            pass
        if first and self._state != _PREAMBLE:
            assert self.out[0] is not None
            self.out[0] = self.out[0][2:]

    def finish(self) -> None:
        """Take the end of the body. Raises BadRequest where the form was not whole."""
        if self._state != _END:
            raise BadRequest("The form ends before its last boundary.")

    def _step(self) -> bool:
        """Take one part of the form out of what has come; return False where more has to come first."""
        data = self._rest
        match self._state:
            case _ if self._state in (_PREAMBLE, _FIELD, _FILE):
                at = self._find(self._delimiter)
                if at < 0:
                    return self._wait_for_delimiter()
                if self._state == _PREAMBLE and at:
                    raise BadRequest("The form does not begin with its boundary.")
                self._end_part(bytes(data[:at]))
                self._pass_to(at + len(self._delimiter), at)
                self._state = _AFTER_DELIMITER
            case _ if self._state == _AFTER_DELIMITER:
                return self._end_delimiter()
            case _ if self._state == _HEAD:
                at = self._find(b"\r\n\r\n")
                if at < 0:
                    if len(data) > MAX_HEAD_BYTES:
                        raise BadRequest("The head of a part of the form is too long.")
                    return False
                self._begin_part(bytes(data[:at]))
                self._pass_to(at + 4)
            case _:
                self._pass_to(len(data))
                return False
        return True

    def _end_delimiter(self) -> bool:
        """Take the rest of a delimiter's line: the marker of the form's end, or padding and the line's end."""
        data = self._rest
        if data.startswith(b"--"):
            self._state = _END
            self._pass_to(2)
            return True
        beginning = bytes(data[: MAX_PADDING_BYTES + 2])
        padding = len(beginning) - len(beginning.lstrip(b" \t"))
        line_end = beginning[padding : padding + 2]
        if line_end == b"\r\n":
            self._state = _HEAD
            self._pass_to(padding)
            return True
        if padding > MAX_PADDING_BYTES or not (b"\r\n".startswith(line_end) or beginning == b"-"):
            raise BadRequest("The form is malformed after a boundary.")
        return False

    def _find(self, mark: bytes) -> int:
        """Return where a mark begins in what has come, or -1; nothing is looked through twice."""
        at = self._rest.find(mark, self._searched)
        if at < 0:
            self._searched = max(0, len(self._rest) - len(mark) + 1)
        return at

    def _wait_for_delimiter(self) -> bool:
        if self._state == _FILE:
            if self._searched:
                self._pass_to(self._searched)
        elif len(self._rest) > MAX_FIELD_BYTES:
            where = f"The field '{self._name}'" if self._state == _FIELD else "What stands before the form"
            raise BadRequest(f"{where} is too long.", param=self._name or None)
        return False

    def _pass_to(self, end: int, start: int = 0) -> None:
        """Put out what has come between two places, and go on after it."""
        if end > start:
            with memoryview(self._rest) as view:  # a slice of the buffer itself would be copied twice
                self.out.append(bytes(view[start:end]))
        del self._rest[:end]
        self._searched = 0

    def _begin_part(self, head: bytes) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts.")
        parameters = _disposition(head)
        name = parameters.get(b"name")
        if name is None:
            raise BadRequest("A part of the form has no name.")
        self._name = name.decode("utf-8", "replace")
        if b"\\" in name:  # some unescape it, some do not
            raise BadRequest("The name of a part of the form holds a backslash.")
        if parameters.keys().isdisjoint((b"filename", b"filename*")):
            self._state = _FIELD
            return
        if self._name == MODEL or self._name in self.frozen:
            raise BadRequest(f"The field '{self._name}' must not be a file.", param=self._name)
        self._state = _FILE
        self.files.append(self._name)

    def _end_part(self, value: bytes) -> None:
        """Take what stood before a delimiter: a field's value, or the last of a file."""
        if self._state == _FILE:
            if value:
                self.out.append(value)
        elif self._state == _FIELD:
            self._take_field(value)

    def _take_field(self, value: bytes) -> None:
        name = self._name
        if name in self.frozen:
            raise BadRequest(f"The field '{name}' must come before the file.", param=name)
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise BadRequest(f"The field '{name}' is not UTF-8.", param=name) from None
        if name == MODEL:
            if name in self.fields:
                raise BadRequest("The field 'model' comes twice.", param=name)
            self.out.append(None)
        elif value:
            self.out.append(value)
        self.fields.setdefault(name, []).append(text)


class Part(NamedTuple):
    """One part of a form that is here whole."""

    name: str
    is_file: bool
    content_type: bytes
    """In lower case, without parameters; empty where none is told."""
    start: int
    end: int
    """Where its content lies in the form."""


def parts_of(form: bytes, boundary: bytes) -> Iterator[Part]:
    """Return the parts of a whole form, which a `Form` has read before."""
    delimiter = b"\r\n--" + boundary
    at = len(delimiter) - 2
    while not form.startswith(b"--", at):
        head_at = form.index(b"\r\n", at)
        head_end = form.index(b"\r\n\r\n", head_at)
        start = head_end + 4
        end = form.index(delimiter, start)
        head = form[head_at:head_end]
        parameters = _disposition(head)
        kind = _CONTENT_TYPE.search(head)
        yield Part(
            parameters[b"name"].decode("utf-8", "replace"),
            not parameters.keys().isdisjoint((b"filename", b"filename*")),
            b"" if kind is None else kind[1].strip().lower(),
            start,
            end,
        )
        at = end + len(delimiter)


def _disposition(head: bytes) -> dict[bytes, bytes]:
    """Return the parameters of a part's Content-Disposition.

    Raises:
        BadRequest: there is not exactly one, or a line is malformed.
    """
    given: list[bytes] = []
    for line in head.removeprefix(b"\r\n").split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest("The head of a part of the form is malformed.")
        if header[1].lower() == b"content-disposition":
            given.append(header[2])
    if len(given) != 1:
        raise BadRequest("A part of the form must have one Content-Disposition.")
    found = _DISPOSITION.match(given[0])
    parameters = None if found is None else _parameters(given[0][found.end() :])
    if parameters is None:
        raise BadRequest("The Content-Disposition of a part of the form is malformed.")
    return parameters
