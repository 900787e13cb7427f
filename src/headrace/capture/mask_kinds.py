"""The masks that headrace brings along. Nulls stay null in all of them (mask.py sees to it).

What a mask of text sees of a value that is no text: numbers in digits, ``YYYY-MM-DD``, ``YYYY-MM-DD HH:MM:SS.ffffff`` (TIMESTAMP in UTC),
``[-]HH:MM:SS.ffffff``, and what a type cannot hold as the source writes it (``0000-00-00``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, SecretStr, model_validator

from headrace.capture.mask import Array, Mask, nulls
from headrace.model import MaskConfig
from headrace.ums.schema import Column
from headrace.ums.values import from_text, is_bytes, is_text, to_text

_STARS = "*"
_JSON = "json"


# --- keep


class KeepConfig(MaskConfig):
    """Leaves values as they are, on purpose: an exception from a later pattern, or the answer to a column that may be a masked one."""

    type: Literal["keep"]

    @property
    def keeps_rows_apart(self) -> bool:
        return True


class KeepMask(Mask):
    """No mask."""

    Config = KeepConfig

    def __init__(self, config: KeepConfig) -> None: ...

    def column(self, column: Column) -> Column:
        return column

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        return values


# --- values that do not depend on what was there


class DefaultConfig(MaskConfig):
    """The neutral value of the column's type: 0, 1970-01-01, 00:00:00, `*`, no bytes, the JSON null; or null."""

    type: Literal["default"]
    as_null: bool = False
    """Null instead."""


class DefaultMask(Mask):
    """Writes the same value of the column's own type into every row."""

    Config = DefaultConfig

    def __init__(self, config: DefaultConfig) -> None:
        self._as_null = config.as_null

    def column(self, column: Column) -> Column:
        return replace(column, nullable=True) if self._as_null else column

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        if self._as_null:
            return nulls(len(values), column.type)
        return _repeated(_neutral(column), column, len(values))


class ConstantConfig(MaskConfig):
    """A value of your own, which must be one of the column's type."""

    type: Literal["constant"]
    value: Annotated[str, BeforeValidator(lambda value: value if value is None else str(value))]
    """As text: numbers in digits, dates as ``1970-01-01``, times as ``1970-01-01 00:00:00``, binary in base64, JSON as JSON."""


class ConstantMask(Mask):
    """Writes the configured value into every row."""

    Config = ConstantConfig

    def __init__(self, config: ConstantConfig) -> None:
        self._value = config.value

    def column(self, column: Column) -> Column:
        if column.source_type == _JSON:
            try:
                json.loads(self._value)
            except ValueError:
                raise ValueError(f"'{self._value}' is not JSON") from None
        if from_text(self._value, column.type) is None:
            raise ValueError(f"'{self._value}' is not a value of that type")
        return column

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        return _repeated(self._value, column, len(values))


_NEUTRAL: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (is_text, _STARS),
    (is_bytes, ""),
    (pa.types.is_date, "1970-01-01"),
    (pa.types.is_timestamp, "1970-01-01 00:00:00"),
    (pa.types.is_duration, "00:00:00"),
    (lambda _: True, "0"),
)


def _neutral(column: Column) -> str:
    if column.source_type == _JSON:
        return "null"
    return next(text for matches, text in _NEUTRAL if matches(column.type))


def _repeated(text: str, column: Column, count: int) -> Array:
    value = from_text(text, column.type)
    assert value is not None, f"{text} was tried before"
    repeated: Array = pa.repeat(value[0], count)
    return repeated


# --- hash


_ALGORITHMS: dict[str, tuple[int, Callable[[bytes], str]]] = {
    "md5": (32, lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    "murmur3": (32, lambda data: mmh3.mmh3_x64_128_digest(data).hex()),
    "sha256": (64, lambda data: hashlib.sha256(data).hexdigest()),
}
"""Name -> length of the result, function. hmac_sha256 has a key and is made from the configuration."""
_HMAC = "hmac_sha256"
_BLOCK_BYTES = 64
"""Of SHA-256."""


class HashConfig(MaskConfig):
    """A hash of the value, as hexadecimal text: the same value gives the same hash, so that it still joins and counts.

    Values of which there are few (phone numbers, dates of birth) can be found from their hashes by trying all: `hmac_sha256` with a
    secret `key` prevents that; the others do not, and md5 and murmur3 least of all.
    """

    type: Literal["hash"]
    algorithm: Literal["md5", "murmur3", "sha256", "hmac_sha256"]
    """murmur3 is the one of 128 bits for 64-bit machines, seed 0."""
    key: SecretStr | None = None
    """Of hmac_sha256: a secret, best ``${NAME}`` from the environment. Whoever has it can try values."""
    salt: SecretStr = SecretStr("")
    """Text that is put behind every value before it is hashed."""
    salt_column: Annotated[str, Field(min_length=1)] | None = None
    """Another column of the row whose value, as text, is put behind the value, so that equal values of different rows differ."""

    @model_validator(mode="after")
    def _key_and_salt(self) -> Self:
        if (self.algorithm == _HMAC) != (self.key is not None):
            raise ValueError("hmac_sha256 needs a `key`, best ${NAME} from the environment; the others have none")
        if self.key is not None and len(self.key.get_secret_value()) < 16:
            raise ValueError("a `key` of less than 16 characters can be guessed")
        if self.salt.get_secret_value() and self.salt_column is not None:
            raise ValueError("give either `salt` or `salt_column`")
        return self

    @property
    def keeps_rows_apart(self) -> bool:
        return self.salt_column is None


class HashMask(Mask):
    """Hashes the bytes of binary values, and the text of all others in UTF-8; decimals without the zeros at their end, so that a column
    that gets more digits keeps its hashes."""

    Config = HashConfig

    def __init__(self, config: HashConfig) -> None:
        self.others = () if config.salt_column is None else (config.salt_column,)
        self._salt = config.salt.get_secret_value().encode()
        if config.key is not None:
            self._characters, self._hash = 64, _keyed(config.key.get_secret_value().encode())
        else:
            self._characters, self._hash = _ALGORITHMS[config.algorithm]

    def column(self, column: Column) -> Column:
        return replace(column, type=pa.utf8(), source_type=f"char({self._characters})")

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        data = _bytes(values)
        if others:
            parts = [data, others[0].cast(pa.binary()), pa.scalar(b"", pa.binary())]
            data = pc.call_function("binary_join_element_wise", parts)
        if self._salt:
            return _by_distinct_value(data, lambda value: self._hash(value + self._salt))
        return _by_distinct_value(data, self._hash)


def _keyed(key: bytes) -> Callable[[bytes], str]:
    """HMAC-SHA256 (RFC 2104) with the key taken in once: copies of two hashes cost half of what `hmac` takes for each value."""
    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))

    def hashed(data: bytes) -> str:
        within, around = inner.copy(), outer.copy()
        within.update(data)
        around.update(within.digest())
        return around.hexdigest()

    return hashed


def _bytes(values: Array) -> Array:
    if is_bytes(values.type):
        return values.cast(pa.binary())
    text = to_text(values)
    if pa.types.is_decimal(values.type) and values.type.scale > 0:
        text = pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")
    return text.cast(pa.binary())


def _by_distinct_value(values: Array, function: Callable[[bytes], str]) -> Array:
    """Text made of binary values, each distinct one once."""
    encoded = values.dictionary_encode()
    distinct: list[Any] = encoded.dictionary.to_pylist()
    return pa.array([function(value) for value in distinct], pa.utf8()).take(encoded.indices)


# --- parts of a value


class RegexConfig(MaskConfig):
    """Keeps parts of the value's text by a regular expression. A value that does not match as a whole becomes `otherwise`, never itself."""

    type: Literal["regex"]
    pattern: str
    """RE2 (no look-around, no way to run for ever), matched against the whole value: ``(\\d{3})\\d{4}(\\d{4})``."""
    replacement: str
    """With ``\\1`` to ``\\9`` for the groups: ``\\1****\\2``."""
    otherwise: str = _STARS
    """What a value becomes that does not match."""

    @model_validator(mode="after")
    def _re2(self) -> Self:
        try:
            # By itself first: one half of a parenthesis would undo what is put around it.
            pc.match_substring_regex(pa.array([""]), pattern=self.pattern)
            pc.replace_substring_regex(pa.array([""]), pattern=_whole(self.pattern), replacement=self.replacement)
        except pa.ArrowInvalid as error:
            raise ValueError(f"not a regular expression of RE2: {error}") from None
        return self


class RegexMask(Mask):
    """Replaces whole values by what the pattern keeps of them."""

    Config = RegexConfig

    def __init__(self, config: RegexConfig) -> None:
        self._pattern = _whole(config.pattern)
        self._replacement = config.replacement
        self._otherwise = pa.scalar(config.otherwise)

    def column(self, column: Column) -> Column:
        _must_not_be_binary(column)
        return replace(column, type=pa.utf8(), source_type="text")

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        text = to_text(values)
        kept = pc.replace_substring_regex(text, pattern=self._pattern, replacement=self._replacement)
        matched: Array = pc.if_else(pc.match_substring_regex(text, pattern=self._pattern), kept, self._otherwise)
        return matched


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


class TruncateConfig(MaskConfig):
    """The beginning of the value's text, or of binary. A value that is not longer stays as it is."""

    type: Literal["truncate"]
    characters: Annotated[int, Field(ge=0)] | None = None
    """How many characters are kept, of text."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    """How many bytes are kept, of binary or of text in UTF-8, which is not cut within a character."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.characters is None) == (self.bytes is None):
            raise ValueError("give either `characters` or `bytes`")
        return self


class TruncateMask(Mask):
    """Cuts values."""

    Config = TruncateConfig

    def __init__(self, config: TruncateConfig) -> None:
        self._characters, self._bytes = config.characters, config.bytes

    def column(self, column: Column) -> Column:
        if is_bytes(column.type):
            if self._bytes is None:
                raise ValueError("binary is cut by `bytes`")
            return replace(column, type=pa.binary(), source_type=f"varbinary({self._bytes})")
        length = self._bytes if self._characters is None else self._characters
        return replace(column, type=pa.utf8(), source_type=f"varchar({length})")

    def apply(self, values: Array, column: Column, others: Sequence[Array]) -> Array:
        if is_bytes(column.type):
            return pc.binary_slice(values.cast(pa.binary()), 0, self._bytes)
        text = to_text(values)
        if self._bytes is None:
            return pc.utf8_slice_codeunits(text, 0, self._characters)
        return _by_distinct_value(text.cast(pa.binary()), lambda value: value[: self._bytes].decode(errors="ignore"))


def _must_not_be_binary(column: Column) -> None:
    if is_bytes(column.type):
        raise ValueError("binary has no text: use hash, truncate, constant or default")
