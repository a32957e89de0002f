"""A form with files, read as it comes: small fields are understood, files pass, all of it byte for byte.

Only one thing is ever changed: the value of `model`, which is left out of what passes and marked there, so that each
attempt puts its own in. Source: RFC 7578, RFC 2046 (5.1.1).
"""

import re

from sluicegate.errors import BadRequest

MAX_FIELD_BYTES = 262_144
MAX_HEAD_BYTES = 16_384
MAX_PARTS = 128
MODEL = "model"
_BOUNDARY = re.compile(
    rb'multipart/form-data\s*;(?:[^;]*;)*?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.I
)
_NAME = re.compile(rb';\s*name=(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')
_FILENAME = re.compile(rb";\s*filename\*?=")
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:\s*form-data([^\r\n]*)", re.I)

_PREAMBLE, _AFTER_DELIMITER, _HEAD, _FIELD, _FILE, _END = range(6)


def boundary_of(content_type: bytes | None) -> bytes:
    """Return what separates a form's parts.

    Raises:
        BadRequest: the body is no form.
    """
    found = _BOUNDARY.match(content_type or b"")
    if found is None:
        raise BadRequest("The request's Content-Type must be multipart/form-data with a boundary.")
    return found[1] or found[2]


class Form:
    """One form, from its first byte to its last."""

    __slots__ = ("_delimiter", "_name", "_parts", "_rest", "_state", "fields", "files", "frozen", "out")

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._state = _PREAMBLE
        self._rest = b"\r\n"  # so that the first delimiter looks like the others; never put out
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
                at = data.find(self._delimiter)
                if at < 0:
                    return self._wait_for_delimiter(data)
                if self._state == _PREAMBLE and at:
                    raise BadRequest("The form does not begin with its boundary.")
                self._end_part(data[:at])
                self._pass_to(at + len(self._delimiter), at)
                self._state = _AFTER_DELIMITER
            case _ if self._state == _AFTER_DELIMITER:
                if len(data) < 2:
                    return False
                if data[:2] not in (b"\r\n", b"--"):
                    raise BadRequest("The form is malformed after a boundary.")
                self._state = _HEAD if data[:2] == b"\r\n" else _END
                self._pass_to(0 if self._state == _HEAD else 2)
            case _ if self._state == _HEAD:
                at = data.find(b"\r\n\r\n")
                if at < 0:
                    if len(data) > MAX_HEAD_BYTES:
                        raise BadRequest("The head of a part of the form is too long.")
                    return False
                self._begin_part(data[:at])
                self._pass_to(at + 4)
            case _:
                self._pass_to(len(data))
                return False
        return True

    def _wait_for_delimiter(self, data: bytes) -> bool:
        if self._state == _FILE:
            sure = len(data) - len(self._delimiter) + 1
            if sure > 0:
                self._pass_to(sure)
        elif len(data) > MAX_FIELD_BYTES:
            where = f"The field '{self._name}'" if self._state == _FIELD else "What stands before the form"
            raise BadRequest(f"{where} is too long.", param=self._name or None)
        return False

    def _pass_to(self, end: int, start: int = 0) -> None:
        """Put out what has come between two places, and go on after it."""
        if end > start:
            self.out.append(self._rest[start:end])
        self._rest = self._rest[end:]

    def _begin_part(self, head: bytes) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts.")
        disposition = _DISPOSITION.search(head)
        name = None if disposition is None else _NAME.search(disposition[1])
        if disposition is None or name is None:
            raise BadRequest("A part of the form has no name.")
        self._name = (name[1] or name[2] or b"").decode("utf-8", "replace")
        if _FILENAME.search(disposition[1]) is None:
            self._state = _FIELD
        else:
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
