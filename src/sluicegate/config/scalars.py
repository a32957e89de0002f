"""The scalars of the configuration: types that read the text of the file (`document.Text`), with bounds and schema.

How each text is read is `values`'.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, WithJsonSchema

from sluicegate.capabilities import EFFORTS, IMAGE_SIZES, Effort, ImageSize
from sluicegate.config import values
from sluicegate.config.values import Address
from sluicegate.messages import Format


def reader(read: Callable[[str], Any], *done: type) -> BeforeValidator:
    """Make a validator that reads text with `read` and lets values of the types `done` (defaults, tests)
    through."""

    def validate(value: Any) -> Any:
        if isinstance(value, str) and type(value) not in done:
            return read(value)
        if type(value) in done:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return read(str(value))
        raise ValueError(f"must be a plain value, not {_kind(value)}")

    return BeforeValidator(validate)


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    return {dict: "a mapping", list: "a list", bool: "true or false"}.get(type(value), "that")


def _secret(read: Callable[[str], str]) -> BeforeValidator:
    """Make a validator of a text that must never be shown."""

    def validate(value: Any) -> SecretStr:
        if isinstance(value, SecretStr):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be a plain value, not {_kind(value)}")
        return SecretStr(read(value))

    return BeforeValidator(validate)


MAX_DIGITS = 18
"""Of a whole number: what is longer than 64 bits could not be told to a worker."""


def read_whole(text: str) -> int:
    digits = text.strip().replace("_", "")
    bare = digits.removeprefix("-")
    if not bare.isascii() or not bare.isdigit():
        has_unit = bare[:1].isdigit() and (bare[-1:].isalpha() or bare.endswith("%"))
        raise ValueError("must be a whole number without a unit" if has_unit else "must be a whole number")
    if len(bare) > MAX_DIGITS:
        raise ValueError(f"must be a whole number of at most {MAX_DIGITS} digits")
    return int(digits)


def _read_limit(text: str) -> int:
    try:
        return read_whole(text)
    except ValueError as error:
        raise ValueError(f"{error}; left out, there is no limit") from None


def _read_flag(text: str) -> bool:
    flag = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(
        text.lower()
    )
    if flag is None:
        raise ValueError("must be true or false")
    return flag


def _read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 100_000:
        raise ValueError("must be a number of 0 to 100000")
    return rate


def _read_streams(text: str) -> int:
    return 0 if text == "auto" else read_whole(text)


def _read_memory(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a plain value, not {_kind(value)}")
    memory = None if value == "auto" else read_whole(value)
    if memory is not None and memory < 0:
        raise ValueError("must be at least 0")
    return memory


def _read_repair(text: str) -> Literal["auto"] | bool:
    return "auto" if text == "auto" else _read_flag(text)


def _resolve(value: Any, info: ValidationInfo) -> Path:
    """Read a path; a relative one is relative to the configuration's folder, which the context holds."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("must be the path of a file")
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / Path(value).expanduser()


def schema_of(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


def words(*choices: str) -> BeforeValidator:
    """Make a validator that a text is one of a few words; the Literal beside it holds the type."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be {either(choices)}")
        return str(value)

    return BeforeValidator(validate)


def either(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


Whole = Annotated[int, reader(read_whole, int), schema_of("integer")]
Limit = Annotated[int, reader(_read_limit, int), Field(ge=1), schema_of("integer", minimum=1)]
Flag = Annotated[bool, reader(_read_flag, bool), schema_of("boolean")]
Duration = Annotated[
    float,
    reader(values.parse_duration, float),
    schema_of("string", format="duration", examples=["250ms", "30s", "5m"]),
]
Usd = Annotated[int, reader(values.parse_amount, int), schema_of("number", minimum=0, format="usd")]
"""Nano-USD. A Python int is taken as nano-USD already; text is USD."""
PriceUsd = Annotated[
    int, reader(values.parse_price, int), schema_of("number", minimum=0, maximum=1_000_000, format="usd")
]
"""Nano-USD, as `Usd`."""
Factor = Annotated[int, reader(values.parse_multiplier, int), schema_of("number", minimum=0, maximum=100)]
"""Millionths."""
Percent = Annotated[int, reader(values.parse_percent, int), schema_of("number", minimum=0, maximum=10000)]
"""Millionths of a percent."""
Rate = Annotated[float, reader(_read_rate, float), schema_of("number", minimum=0)]
Listen = Annotated[Address, reader(values.parse_address, Address), schema_of("string", format="host:port")]
File = Annotated[Path, BeforeValidator(_resolve), schema_of("string", format="path")]
Name = Annotated[str, reader(values.parse_name), schema_of("string")]
ModelId = Annotated[str, reader(values.parse_model_id), schema_of("string")]
UpstreamId = Annotated[str, reader(values.parse_upstream_id), schema_of("string")]
BaseUrl = Annotated[str, reader(values.parse_base_url), schema_of("string", format="uri")]
Origin = Annotated[str, reader(values.parse_origin), schema_of("string")]
HeaderName = Annotated[str, reader(values.parse_header_name), schema_of("string")]
CostHeader = Annotated[str, reader(values.parse_cost_header), schema_of("string")]
Instant = Annotated[datetime, reader(values.parse_instant, datetime), schema_of("string", format="date-time")]
Word = Annotated[str, reader(str), schema_of("string")]
Streams = Annotated[
    int,
    reader(_read_streams, int),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
Memory = Annotated[
    int | None,
    BeforeValidator(_read_memory),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0}]}),
]
Probe = Annotated[Literal["none", "models", "request"], words("none", "models", "request")]
Repair = Annotated[
    Literal["auto"] | bool, reader(_read_repair, bool), WithJsonSchema({"enum": ["auto", True, False]})
]
Credential = Annotated[SecretStr, _secret(values.parse_credential), schema_of("string", format="password")]
GatewayKey = Annotated[
    SecretStr,
    _secret(values.parse_gateway_key),
    schema_of("string", format="password", minLength=16, maxLength=128),
]
KeyHash = Annotated[
    SecretStr, _secret(values.parse_key_hash), schema_of("string", format="password", minLength=32)
]
HeaderValue = Annotated[SecretStr, _secret(values.parse_header_value), schema_of("string")]
QueryValue = Annotated[SecretStr, _secret(str), schema_of("string")]
Proxy = Annotated[SecretStr, _secret(values.parse_proxy), schema_of("string", format="uri")]
StoreUrl = Annotated[SecretStr, _secret(values.parse_store_url), schema_of("string")]
CountersUrl = Annotated[SecretStr, _secret(values.parse_counters_url), schema_of("string")]
CutRule = Annotated[Literal["produced", "drain", "none"], words("produced", "drain", "none")]
UsageChunk = Annotated[Literal["on_request", "always"], words("on_request", "always")]
CostPlace = Annotated[Literal["usage", "extension", "none"], words("usage", "extension", "none")]
PROFILES = ("default", "relaykit", "openrelay", "rutoken", "cloakray")
Profile = Annotated[Literal["default", "relaykit", "openrelay", "rutoken", "cloakray"], words(*PROFILES)]
Translation = Annotated[Literal["default", "strict", "lenient"], words("default", "strict", "lenient")]
FORMATS = ("chat", "completions", "responses", "messages", "gemini")
WireFormat = Annotated[Format, words(*FORMATS)]
UNARY = (
    "embeddings", "images", "speech", "transcription", "moderation", "rerank", "video", "files", "batches",
    "count_tokens",
)  # fmt: skip
Unary = Annotated[str, words(*UNARY), WithJsonSchema({"enum": list(UNARY)})]
AuthScheme = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google"]
Auth = Annotated[AuthScheme, words("bearer", "x-api-key", "x-goog-api-key", "api-key", "none", "google")]
Strategy = Annotated[
    Literal["weighted", "least_busy", "fastest_first_token", "cheapest"],
    words("weighted", "least_busy", "fastest_first_token", "cheapest"),
]
Temperature = Annotated[
    float, reader(_read_rate, float), Field(le=2), schema_of("number", minimum=0, maximum=2)
]
Tokens = Annotated[int, reader(read_whole, int), Field(ge=1, le=10_000_000), schema_of("integer")]
EffortName = Annotated[Effort, words(*EFFORTS)]
PictureSize = Annotated[ImageSize, words(*IMAGE_SIZES)]
AspectRatio = Annotated[str, reader(values.parse_aspect_ratio), schema_of("string", examples=["16:9"])]


def plain(value: Any) -> str:
    """Return a setting's text, secrets included: to be looked at, not shown."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
