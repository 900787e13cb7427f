"""The operators of rules. Each takes the rows that have come so far, and hands on those that fit it, with what it has made of them.

The sixteen operators of DBus's rules, and what they are here (docs/how-to/app-logs.md)::

    filter, keyFilter        filter              split                split          flattenJsonArray, flattenUms   flatten
    regexExtract             extract             jsonPath             json           concat, prefixOrAppend         concat
    trim                     trim                replace              replace        subString                      substring
    toIndex, select, saveAs, excludeField: fields have names here, and `columns` of the rule says which of them are kept, and as what
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Annotated, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, model_validator

from headrace.capture.lines.fields import LINE, Array, Fields, call, is_true, texts_of
from headrace.codec.json_texts import elements, members
from headrace.model import Model

FieldName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_MOST_REPEATED_BYTES = 32 << 20
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PATH_STEP = re.compile(r"""\.?([^.\[\]"]+)|\[(\d+)\]|\["([^"]+)"\]""")


def _regex(pattern: str) -> str:
    """A regular expression as RE2 reads it, which Arrow does."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"this is no regular expression (of RE2, without look-around): {error}") from error
    return pattern


Regex = Annotated[str, AfterValidator(_regex)]


class Step(Model):
    """One operator with its options."""

    @abstractmethod
    def apply(self, fields: Fields) -> Fields:
        """The rows that fit, in their order."""

    @property
    def takes(self) -> set[str]:
        """The fields that must be there."""
        return {getattr(self, "field", LINE)}

    @property
    def makes(self) -> set[str]:
        """The fields that are there afterwards."""
        return set()

    @property
    def ends(self) -> set[str]:
        """The fields that are not there any more."""
        return set()


class Filter(Step):
    """Keeps rows by the text of a field. A text that is not there fits nothing."""

    do: Literal["filter"]
    field: FieldName = LINE
    equals: str | list[str] | None = None
    """This text, or one of these."""
    contains: str | None = None
    """A part of the text."""
    matches: Regex | None = None
    """A regular expression that matches somewhere in the text."""
    keep: bool = True
    """False: keeps the rows that do not fit."""

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if sum(each is not None for each in (self.equals, self.contains, self.matches)) != 1:
            raise ValueError("write one of equals, contains and matches")
        return self

    def apply(self, fields: Fields) -> Fields:
        texts = fields[self.field]
        if self.equals is not None:
            wanted = [self.equals] if isinstance(self.equals, str) else self.equals
            fits = call("is_in", texts, options=pc.SetLookupOptions(texts_of(wanted)))
        elif self.contains is not None:
            fits = pc.match_substring(texts, self.contains)
        else:
            assert self.matches is not None
            fits = pc.match_substring_regex(texts, self.matches)
        return fields.where(is_true(fits) if self.keep else pc.invert(is_true(fits)))


class Extract(Step):
    """Named groups of a regular expression become fields: ``(?P<status>[0-9]+)``. Rows that it does not match do not fit."""

    do: Literal["extract"]
    field: FieldName = LINE
    regex: Regex
    """The regular expression; it may match a part of the text, ``^`` and ``$`` bind it to the ends."""

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        try:
            pc.extract_regex(pa.array([""]), self.regex)
        except pa.ArrowInvalid as error:
            raise ValueError("every group needs a name, (?P<name>…), or is (?:…)") from error
        if not self.makes:
            raise ValueError("it has no group (?P<name>…)")
        return self

    @property
    def makes(self) -> set[str]:
        kind = pc.extract_regex(pa.array([""]), self.regex).type
        return {kind.field(index).name for index in range(kind.num_fields)}

    def apply(self, fields: Fields) -> Fields:
        found = pc.extract_regex(fields[self.field], self.regex)
        fits = pc.is_valid(found)
        kept, groups = fields.where(fits), found.filter(fits)
        for name in sorted(self.makes):
            kept = kept.with_field(name, pc.struct_field(groups, name))
        return kept


class Split(Step):
    """Pieces of a text become fields; the last one has all that is left. Rows with fewer pieces do not fit."""

    do: Literal["split"]
    field: FieldName = LINE
    by: Annotated[str, Field(min_length=1)]
    """What stands between the pieces."""
    to: Annotated[list[FieldName], Field(min_length=2)]
    """The pieces' names."""

    @property
    def makes(self) -> set[str]:
        return set(self.to)

    def apply(self, fields: Fields) -> Fields:
        pieces = pc.split_pattern(fields[self.field], self.by, max_splits=len(self.to) - 1)
        fits = is_true(call("equal", call("list_value_length", pieces), len(self.to)))
        kept, pieces = fields.where(fits), pieces.filter(fits)
        for index, name in enumerate(self.to):
            kept = kept.with_field(name, call("list_element", pieces, index))
        return kept


class Json(Step):
    """Members of a JSON text become fields, null where they are missing. Rows whose text is no object or array do not fit."""

    do: Literal["json"]
    field: FieldName = LINE
    to: Annotated[dict[FieldName, str], Field(min_length=1)]
    """Field -> place: ``user.name``, ``tags[0]``, ``["log.level"]``. Objects and arrays become JSON text."""

    @model_validator(mode="after")
    def _places(self) -> Self:
        for place in self.to.values():
            json_path(place)
        return self

    @property
    def makes(self) -> set[str]:
        return set(self.to)

    def apply(self, fields: Fields) -> Fields:
        fits, columns = members(fields[self.field], [json_path(place) for place in self.to.values()])
        kept = fields.where(fits)
        for name, column in zip(self.to, columns, strict=True):
            kept = kept.with_field(name, column.filter(fits) if len(kept) < len(fields) else column)
        return kept


class Flatten(Step):
    """A JSON array becomes a row per element, in a field; the text that had the array is gone. Rows whose text has no such array, an empty
    one, or one that would repeat the other fields too often, do not fit."""

    do: Literal["flatten"]
    field: FieldName = LINE
    at: str = ""
    """The array's place in the text: ``payload``, ``a.b[0]``; the text itself when left out."""
    to: FieldName
    """The field that has the element: text as it is, all else as JSON text."""

    @model_validator(mode="after")
    def _place(self) -> Self:
        json_path(self.at)
        return self

    @property
    def makes(self) -> set[str]:
        return {self.to}

    @property
    def ends(self) -> set[str]:
        return {self.field} - {self.to}

    def apply(self, fields: Fields) -> Fields:
        rows, values = elements(fields[self.field], json_path(self.at))
        others = fields.only([name for name in fields.texts if name not in (self.field, self.to)])
        counted = pc.value_counts(rows)
        distinct, counts = counted.field("values"), counted.field("counts")
        repeated = call("multiply", pa.array(others.sizes(), pa.int64()).take(distinct), counts)
        few = distinct.filter(call("less_equal", repeated, _MOST_REPEATED_BYTES))
        fits = call("is_in", rows, options=pc.SetLookupOptions(few))
        return others.take(rows.filter(fits)).with_field(self.to, values.filter(fits))


class Trim(Step):
    """Takes characters off the ends of a text."""

    do: Literal["trim"]
    field: FieldName
    characters: Annotated[str, Field(min_length=1)] | None = None
    """These characters; white space when left out."""
    side: Literal["both", "left", "right"] = "both"

    def apply(self, fields: Fields) -> Fields:
        side = {"both": "", "left": "l", "right": "r"}[self.side]
        if self.characters is None:
            trimmed = pc.call_function(f"utf8_{side}trim_whitespace", [fields[self.field]])
        else:
            trimmed = pc.call_function(f"utf8_{side}trim", [fields[self.field]], pc.TrimOptions(self.characters))
        return fields.with_field(self.field, trimmed)


class Replace(Step):
    """Puts a text in the place of each part that fits."""

    do: Literal["replace"]
    field: FieldName
    text: Annotated[str, Field(min_length=1)] | None = None
    """The part, as it is."""
    regex: Regex | None = None
    """The part as a regular expression; ``\\1`` in `by` is its first group."""
    by: str = ""
    """What stands there instead."""

    @model_validator(mode="after")
    def _one_part(self) -> Self:
        if (self.text is None) == (self.regex is None):
            raise ValueError("write one of text and regex")
        if self.regex is not None:
            try:
                pc.replace_substring_regex(pa.array([""]), self.regex, self.by)
            except pa.ArrowInvalid as error:
                raise ValueError(f"`by` does not fit the regular expression: {error}") from error
        return self

    def apply(self, fields: Fields) -> Fields:
        texts = fields[self.field]
        if self.text is not None:
            return fields.with_field(self.field, pc.replace_substring(texts, self.text, self.by))
        assert self.regex is not None
        return fields.with_field(self.field, pc.replace_substring_regex(texts, self.regex, self.by))


class Substring(Step):
    """A part of a text by the places of its characters, the first is 0; negative ones count from the end."""

    do: Literal["substring"]
    field: FieldName
    start: int = 0
    stop: int | None = None
    """Before this one; to the end when left out."""
    to: FieldName | None = None
    """The field that gets the part; the same one when left out."""

    @property
    def makes(self) -> set[str]:
        return {self.to or self.field}

    def apply(self, fields: Fields) -> Fields:
        part = pc.utf8_slice_codeunits(fields[self.field], self.start, self.stop)
        return fields.with_field(self.to or self.field, part)


class Concat(Step):
    """Puts a text together: ``{method} {url}``. What is not there is empty in it."""

    do: Literal["concat"]
    of: str
    """Texts, and fields in braces."""
    to: FieldName

    @property
    def takes(self) -> set[str]:
        return set(_PLACE.findall(self.of))

    @property
    def makes(self) -> set[str]:
        return {self.to}

    def apply(self, fields: Fields) -> Fields:
        pieces = _PLACE.split(self.of)
        parts: list[Array] = [
            fields[piece] if place % 2 else pa.repeat(piece, len(fields)) for place, piece in enumerate(pieces)
        ]
        options = pc.JoinOptions(null_handling="replace", null_replacement="")
        return fields.with_field(self.to, call("binary_join_element_wise", *parts, "", options=options))


AnyStep = Annotated[
    Filter | Extract | Split | Json | Flatten | Trim | Replace | Substring | Concat, Field(discriminator="do")
]


def json_path(place: str) -> list[str | int]:
    """The steps of a place in JSON; ValueError when it is none."""
    bare = place.removeprefix("$")
    found = list(_PATH_STEP.finditer(bare))
    if "".join(step[0] for step in found) != bare or bare.startswith(".") != (place.startswith("$.")):
        raise ValueError(f"'{place}' is no place in JSON: write user.name, tags[0] or [\"log.level\"]")
    return [int(step[2]) if step[2] else step[1] or step[3] for step in found]
