"""Masks: what each kind makes of values, what a masked table says of itself, and that nothing gets by in clear."""

from __future__ import annotations

import hashlib
import hmac
import json
import textwrap
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.error_ledger import counted, entries_of, told
from headrace.capture.mask import Masker, check_masks
from headrace.capture.mysql_config import MySqlConfig
from headrace.errors import ConfigError, CorruptError, DataError
from headrace.ums.change import ChangeBatch, Clear, End, read_block
from headrace.ums.schema import RAW, Column, Namespace, TableSchema

NAMESPACE = Namespace("mysql", "db1", "shop", "customers")
TABLE = TableSchema(
    NAMESPACE,
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("phone", pa.utf8(), "varchar(20)"),
        Column("born", pa.date32(), "date"),
        Column("balance", pa.decimal128(12, 4), "decimal(12,4)"),
        Column("seen", pa.timestamp("us", "UTC"), "timestamp(3)"),
        Column("doc", pa.utf8(), "json"),
        Column("token", pa.binary(), "varbinary(16)"),
        Column("tries", pa.uint8(), "tinyint unsigned"),
        Column("lasted", pa.duration("us"), "time"),
        Column("ratio", pa.float64(), "double"),
    ),
    ("id",),
)
KEY = "a key that nobody guesses"
NO_KEY = replace(TABLE, key=())


def config(**mask: Any) -> MySqlConfig:
    """A source with masks by column of `shop.customers`."""
    masks = {f"shop.customers.{column}": options for column, options in mask.items()}
    return with_masks(masks)


def with_masks(masks: dict[str, Any]) -> MySqlConfig:
    return MySqlConfig.model_validate(
        {"type": "mysql", "name": "db1", "files": "x.0*", "tables": ["*.*"], "mask": masks}
    )


def batch(*rows: dict[str, Any], table: TableSchema = TABLE) -> ChangeBatch:
    system = {"_ums_ts_": 0, "_ums_op_": "u", "_ums_commit_ts_": 0}
    values = [{"_ums_id_": 100 + number, "id": number, **system, **row} for number, row in enumerate(rows)]
    return ChangeBatch(table, pa.RecordBatch.from_pylist(values, schema=table.arrow_schema()))


def masked(masks: MySqlConfig, change: ChangeBatch) -> ChangeBatch:
    result = Masker(masks, None).mask(change)
    assert isinstance(result.change, ChangeBatch)
    assert not result.failed
    result.change.data.validate(full=True)
    assert result.change.data.schema == result.change.table.arrow_schema()
    return result.change


def column_of(column: str, mask: dict[str, Any], *values: object, table: TableSchema = TABLE) -> list[Any]:
    return (
        masked(config(**{column: mask}), batch(*({column: value} for value in values), table=table))
        .data.column(column)
        .to_pylist()
    )


@pytest.mark.parametrize(
    ("column", "value", "neutral"),
    [
        ("phone", "0171", "*"), ("born", date(1990, 2, 3), date(1970, 1, 1)), ("balance", Decimal("1.5"), Decimal(0)),
        ("doc", '{"a": 1}', "null"), ("token", b"\x01", b""), ("tries", 7, 0), ("ratio", 2.5, 0.0),
    ],
)  # fmt: skip
def test_default(column: str, value: object, neutral: object) -> None:
    assert column_of(column, {"type": "default"}, value, None) == [neutral, None]
    assert column_of(column, {"type": "default", "as_null": True}, value, None) == [None, None]


def test_defaults_of_times() -> None:
    change = masked(config(seen={"type": "default"}, lasted={"type": "default"}), batch({"seen": 5, "lasted": 6}))
    assert change.data.column("seen").cast(pa.int64()).to_pylist() == [0]
    assert change.data.column("lasted").cast(pa.int64()).to_pylist() == [0]


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("phone", "geheim ü", "geheim ü"), ("born", "2000-12-31", date(2000, 12, 31)), ("balance", "-1.25", Decimal("-1.25")),
        ("tries", 9, 9), ("token", "AP8=", b"\x00\xff"), ("doc", "{}", "{}"), ("ratio", "1e3", 1000.0),
    ],
)  # fmt: skip
def test_constant(column: str, text: str, value: object) -> None:
    clear = batch(
        {"phone": "1", "born": date(1990, 1, 1), "balance": 1, "tries": 1, "token": b"1", "doc": "1", "ratio": 1}, {}
    )
    change = masked(config(**{column: {"type": "constant", "value": text}}), clear)
    assert change.data.column(column).to_pylist() == [value, None]
    assert change.table == TABLE


@pytest.mark.parametrize(("column", "value"), [("born", "soon"), ("tries", "256"), ("doc", "{"), ("token", "ü")])
def test_a_constant_of_another_type_is_refused(column: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"does not fit shop\.customers\.{column}"):
        Masker(config(**{column: {"type": "constant", "value": value}}), None).mask(batch({}))


@pytest.mark.parametrize(("algorithm", "function"), [("md5", hashlib.md5), ("sha256", hashlib.sha256)])
def test_hash(algorithm: str, function: Any) -> None:
    expected = [function(text.encode()).hexdigest() for text in ("0171–😀", "")]
    plain = {"type": "hash", "algorithm": algorithm}
    assert column_of("phone", plain, "0171–😀", None, "", "0171–😀") == [expected[0], None, expected[1], expected[0]]
    salted = column_of("phone", {**plain, "salt": "pepper"}, "0171")
    assert salted == [function(b"0171pepper").hexdigest()]


@pytest.mark.parametrize("key", [KEY, "ü" * 32, "k" * 64, "k" * 65, "k" * 200])
def test_hmac(key: str) -> None:
    found = column_of("phone", {"type": "hash", "algorithm": "hmac_sha256", "key": key, "salt": "s"}, "0171", "", None)
    assert found == [*(hmac.new(key.encode(), text, "sha256").hexdigest() for text in (b"0171s", b"s")), None]


def test_murmur3_is_the_one_of_guava() -> None:
    # Shorter than a block, a block, two blocks and a tail; the last one is not ASCII.
    words = ["", "hello", "0123456789abcdef", "The quick brown fox jumps over the lazy dog", "žluťoučký kůň"]
    expected = [
        "0" * 32,
        "029bbd41b3a7d8cb191dae486a901e5b",
        "a7d14acf946de04bda08a7635c5bc387",
        "6c1b07bc7bbc4be347939ac4a93c437a",
        "98256ea8ad108064ca1ba1beff2cdbd1",
    ]
    assert column_of("phone", {"type": "hash", "algorithm": "murmur3"}, *words) == expected


def test_a_salt_out_of_the_row() -> None:
    mask = {"type": "hash", "algorithm": "sha256", "salt_column": "TRIES"}
    change = masked(config(phone=mask), batch({"phone": "a", "tries": 1}, {"phone": "a", "tries": 2}, {"phone": "a"}))
    assert change.data.column("phone").to_pylist() == [
        hashlib.sha256(text).hexdigest() for text in (b"a1", b"a2", b"a")
    ]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("born", date(1990, 2, 3), b"1990-02-03"), ("balance", Decimal("12.5000"), b"12.5"), ("balance", Decimal(100), b"100"),
        ("tries", 200, b"200"), ("token", b"\x00\xff", b"\x00\xff"), ("seen", 1_500_000, b"1970-01-01 00:00:01.500000"),
        ("lasted", -3_600_000_000, b"-01:00:00.000000"), ("doc", "[1]", b"[1]"), ("ratio", 0.1, b"0.1"),
    ],
)  # fmt: skip
def test_what_is_hashed_of_every_type(column: str, value: object, text: bytes) -> None:
    change = masked(config(**{column: {"type": "hash", "algorithm": "md5"}}), batch({column: value}, {}))
    assert change.data.column(column).to_pylist() == [hashlib.md5(text).hexdigest(), None]
    assert change.table.column(column).type == pa.utf8()
    assert change.table.column(column).source_type == "char(32)"


def test_regex_keeps_parts_and_nothing_else() -> None:
    mask = {"type": "regex", "pattern": r"(\d{3})\d+(\d{2})", "replacement": r"\1***\2"}
    values = ["017112345678", "+49 171 1234567", "", None, "0171123\n", "x017112345678"]
    assert column_of("phone", mask, *values) == ["017***78", "*", "*", None, "*", "*"]
    assert column_of("phone", {**mask, "otherwise": ""}, "unlike") == [""]
    assert column_of("born", {"type": "regex", "pattern": r"(\d{4}).*", "replacement": r"\1"}, date(1990, 2, 3)) == [
        "1990"
    ]


@pytest.mark.parametrize(
    "mask",
    [
        {"type": "regex", "pattern": "(.)[a-z]*", "replacement": r"\1"},
        {"type": "truncate", "characters": 3},
        {"type": "truncate", "bytes": 3},
    ],
)
def test_what_is_cut_off_is_not_left_in_the_buffers(mask: dict[str, Any]) -> None:
    rows = [{"phone": text} for text in ("Secretive", "Secretive 1", "x Secretive", None, "Secretive")]
    change = masked(config(phone=mask), batch(*rows))
    for whole in (change, ChangeBatch(change.table, change.data.slice(1, 2))):
        assert b"etive" not in whole.to_block()


def test_truncate() -> None:
    assert column_of("phone", {"type": "truncate", "characters": 2}, "héllo", "h", None, "😀😀😀") == [
        "hé",
        "h",
        None,
        "😀😀",
    ]
    assert column_of("phone", {"type": "truncate", "bytes": 2}, "héllo", "aé", None, "é") == ["h", "a", None, "é"]
    assert column_of("token", {"type": "truncate", "bytes": 1}, b"\xff\x00", b"", None) == [b"\xff", b"", None]
    assert column_of("born", {"type": "truncate", "characters": 4}, date(1990, 2, 3)) == ["1990"]


def test_a_mask_may_come_by_pattern_and_the_first_counts() -> None:
    masks = {
        "SHOP.cust*.PHONE": {"type": "keep"},
        "*.*.ph?ne": {"type": "default"},
        "*.customers.[token]": {"type": "default"},
        "shop.customers.tok*": {"type": "default"},
    }
    change = masked(with_masks(masks), batch({"phone": "0171", "token": b"x"}))
    assert change.data.column("phone").to_pylist() == ["0171"]
    assert change.data.column("token").to_pylist() == [b""]


def test_what_the_type_cannot_hold_is_masked_too() -> None:
    raw = json.dumps({"born": "0000-00-00", "seen": "2024-00-00 00:00:00"})
    clear = batch({"born": None, RAW: raw}, {"born": date(1990, 2, 3)}, {"born": None, RAW: '{"born":"1990-00-00"}'})
    change = masked(config(born={"type": "hash", "algorithm": "md5"}), clear)
    expected = [hashlib.md5(text).hexdigest() for text in (b"0000-00-00", b"1990-02-03", b"1990-00-00")]
    assert change.data.column("born").to_pylist() == expected
    assert change.data.column(RAW).to_pylist() == ['{"seen": "2024-00-00 00:00:00"}', None, None]
    change = masked(config(born={"type": "default", "as_null": True}), clear)
    assert change.data.column("born").to_pylist() == [None] * 3
    assert "born" not in str(change.data.column(RAW))


@pytest.mark.parametrize(
    ("column", "default", "mask", "expected"),
    [
        ("phone", "0171", {"type": "default"}, "*"),
        ("phone", "0171", {"type": "truncate", "characters": 2}, "01"),
        ("token", "AP8=", {"type": "truncate", "bytes": 1}, "AA=="),
        ("token", "AP8=", {"type": "hash", "algorithm": "md5"}, hashlib.md5(b"\x00\xff").hexdigest()),
        ("born", "0000-00-00", {"type": "hash", "algorithm": "md5"}, hashlib.md5(b"0000-00-00").hexdigest()),
        ("seen", "2024-02-29 01:02:03", {"type": "default"}, "1970-01-01 00:00:00.000000"),
        ("tries", "199", {"type": "default", "as_null": True}, None),
        ("phone", "0171", {"type": "hash", "algorithm": "md5", "salt_column": "id"}, None),
    ],
)
def test_the_value_of_old_rows_is_masked(column: str, default: str, mask: dict[str, Any], expected: str | None) -> None:
    columns = tuple(replace(c, initial_default=default) if c.name == column else c for c in TABLE.columns)
    table = replace(TABLE, columns=columns)
    for change in (batch({}, table=table), Clear(table, 7, 7)):
        found = Masker(config(**{column: mask}), None).mask(change).change
        assert found is not None
        assert found.table.column(column).initial_default == expected
        assert default.encode() not in found.to_block()


def test_a_table_without_masks_is_left_alone() -> None:
    change = batch({"phone": "0171"})
    assert Masker(with_masks({"shop.orders.phone": {"type": "default"}}), None).mask(change).change is change


# --- what is refused


@pytest.mark.parametrize(
    "mask",
    [
        {"type": "default"}, {"type": "constant", "value": 1}, {"type": "truncate", "characters": 2},
        {"type": "regex", "pattern": ".*", "replacement": ""}, {"type": "hash", "algorithm": "sha256", "salt_column": "phone"},
    ],
)  # fmt: skip
def test_a_key_column_only_with_a_mask_that_keeps_rows_apart(mask: dict[str, Any]) -> None:
    masks = config(id=mask)
    with pytest.raises(ConfigError, match="would make different rows one"):
        Masker(masks, None).mask(batch({}))
    with pytest.raises(ConfigError, match="would make different rows one"):
        check_masks(masks, [("shop", "customers", "id", True)])
    masked(masks, batch({"phone": "1"}, table=NO_KEY))


def test_a_hashed_key_stays_a_key() -> None:
    change = masked(
        config(id={"type": "hash", "algorithm": "hmac_sha256", "key": KEY}), batch(*({} for _ in range(100)))
    )
    assert change.table.key == ("id",)
    assert len(set(change.data.column("id").to_pylist())) == 100
    assert len(change.newest_per_key()) == 100


@pytest.mark.parametrize(
    ("column", "mask", "reason"),
    [
        ("token", {"type": "regex", "pattern": "x", "replacement": ""}, "binary has no text"),
        ("token", {"type": "truncate", "characters": 2}, "binary is cut by `bytes`"),
        ("phone", {"type": "hash", "algorithm": "md5", "salt_column": "nosuch"}, "has no column nosuch"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(column: str, mask: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Masker(config(**{column: mask}), None).mask(batch({}))


def test_a_pattern_that_matches_nothing_is_told() -> None:
    masks = with_masks({"shop.customers.fone": {"type": "default"}, "shop.c*.phone": {"type": "default"}})
    with pytest.raises(ConfigError, match=r"`shop\.customers\.fone` of source db1 matches no column"):
        check_masks(masks, [("shop", "customers", "phone", False)])
    masker = Masker(masks, None)
    assert masker.unmatched() == list(masks.mask)
    masker.mask(batch({}))
    assert masker.unmatched() == ["shop.customers.fone"]


# --- what is kept from run to run


def version(number: int, *columns: str, kind: pa.DataType | None = None) -> ChangeBatch:
    shape = tuple(Column(name, kind or pa.int64(), "bigint") for name in columns)
    table = TableSchema(replace(NAMESPACE, version=number), shape)
    return ChangeBatch(table, pa.RecordBatch.from_pylist([], schema=table.arrow_schema()))


HASH = {"type": "hash", "algorithm": "md5"}


def test_masks_that_change_a_type_cannot_come_or_go(tmp_path: Path) -> None:
    for first, second in (({}, {"phone": HASH}), ({"phone": HASH}, {})):
        state = tmp_path / str(len(first))
        masker = Masker(config(**first), state)
        masker.mask(version(0, "phone"))
        masker.save()
        with pytest.raises(ConfigError, match=r"shop\.customers\.phone is"):
            Masker(config(**second), state).mask(version(0, "phone"))
        Masker(config(**first), state).mask(version(0, "phone"))
        Masker(config(**second), state).mask(version(1, "phone"))


def test_a_mask_that_leaves_the_type_alone_can_be_added(tmp_path: Path) -> None:
    masker = Masker(config(), tmp_path)
    masker.mask(version(0, "phone"))
    masker.save()
    Masker(config(phone={"type": "default"}), tmp_path).mask(version(0, "phone"))


def test_a_key_is_masked_from_the_beginning_or_never(tmp_path: Path) -> None:
    table = TableSchema(NAMESPACE, (Column("phone", pa.utf8(), "varchar(20)"),), ("phone",))
    change = ChangeBatch(table, pa.RecordBatch.from_pylist([], schema=table.arrow_schema()))
    for number, (first, second) in enumerate((({}, {"phone": HASH}), ({"phone": HASH}, {}))):
        masker = Masker(config(**first), tmp_path / str(number))
        masker.mask(change)
        masker.save()
        with pytest.raises(
            ConfigError, match=r"key column shop\.customers\.phone is on the log with and without a mask"
        ):
            Masker(config(**second), tmp_path / str(number)).mask(change)


def test_a_masked_column_that_may_have_been_renamed_ends_the_capture(tmp_path: Path) -> None:
    masker = Masker(config(phone=HASH), tmp_path)
    masker.mask(version(0, "id", "phone"))
    masker.save()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"shop\.customers\.phone is gone, and mobile is new and in clear"):
            masker.mask(version(1, "id", "mobile"))
        masker.save()
        masker = Masker(config(phone=HASH), tmp_path)
    masker.mask(version(1, "id"))
    for answer in (HASH, {"type": "keep"}):
        Masker(config(phone=HASH, mobile=answer), tmp_path).mask(version(3, "id", "mobile"))


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    masker = Masker(config(phone=HASH), tmp_path)
    masker.mask(batch({}))
    masker.save()
    (path,) = (tmp_path / "masks").iterdir()
    path.write_text('{"namespace": "x"}')
    with pytest.raises(CorruptError, match=r"which says what was masked, is damaged"):
        Masker(config(phone=HASH), tmp_path).mask(batch({}))
    with pytest.raises(CorruptError, match=r"which says what was masked, is damaged"):
        Masker(config(phone=HASH), tmp_path).unmatched()


def test_two_processes_of_a_source_keep_what_the_other_wrote(tmp_path: Path) -> None:
    one, other = (Masker(config(phone=HASH, fone=HASH, mail=HASH), tmp_path) for _ in range(2))
    one.mask(version(0, "phone"))
    other.mask(version(1, "phone", "mail"))
    one.save()
    other.save()
    for masker in (one, other):
        assert masker.unmatched() == ["shop.customers.fone"]


# --- plug-ins


PLUGIN = """
from typing import Literal
import pyarrow as pa
from headrace.capture.mask import Mask
from headrace.errors import RetryableError
from headrace.model import MaskConfig

class Config(MaskConfig):
    type: Literal["reversed"]
    wrong: bool = False

class Reversed(Mask):
    Config = Config
    def __init__(self, config):
        self.config = config
    def column(self, column):
        return column
    def apply(self, values, column, others):
        if self.config.wrong:
            return values.cast(pa.binary())
        for value in values.to_pylist():
            if value and value.startswith("bad"):
                raise ValueError(f"cannot reverse {value}")
            if value == "away":
                raise RetryableError("the service is away", fix="wait")
        return pa.array([value and value[::-1] for value in values.to_pylist()], pa.utf8())
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with an entry point, as pip installs it."""
    (tmp_path / "reversed_mask.py").write_text(textwrap.dedent(PLUGIN))
    info = tmp_path / "reversed_mask-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reversed-mask\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headrace.masks]\nreversed = reversed_mask:Reversed\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_masks() -> None:
    assert column_of("phone", {"type": "reversed"}, "0171", None) == ["1710", None]


@pytest.mark.usefixtures("plugin")
def test_rows_that_a_plug_in_fails_on_go_to_the_error_ledger_without_the_value() -> None:
    masks = config(phone={"type": "reversed"}, born={"type": "default"})
    rows = [{"phone": text, "born": date(1990, 2, 3)} for text in ("one", "bad secret", "two", "bad luck", "three")]
    result = Masker(masks, None).mask(batch(*rows))
    assert isinstance(result.change, ChangeBatch)
    assert result.change.data.column("phone").to_pylist() == ["eno", "owt", "eerht"]
    assert result.change.data.column("_ums_id_").to_pylist() == [100, 102, 104]
    (failed,) = result.failed
    assert counted([failed, failed]) == {str(failed.rows.table.namespace): 4}
    entries = [json.loads(entry.value) for entry in entries_of([failed], 0)]
    assert [(one["id"], one["column"], one["reason"]) for one in entries] == [
        (101, "phone", "ValueError"),
        (103, "phone", "ValueError"),
    ]
    everything = json.dumps(entries) + told(failed)
    assert "1970-01-01" in everything
    for clear in ("secret", "luck", "1990"):
        assert clear not in everything


@pytest.mark.usefixtures("plugin")
def test_a_change_of_failed_rows_only_is_not_written() -> None:
    result = Masker(config(phone={"type": "reversed"}), None).mask(batch({"phone": "bad"}))
    assert result.change is None
    assert len(result.failed[0].rows) == 1


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_that_returns_another_type_fails_on_every_row() -> None:
    result = Masker(config(phone={"type": "reversed", "wrong": True}), None).mask(
        batch({"phone": "a"}, {"phone": None})
    )
    assert isinstance(result.change, ChangeBatch)
    assert result.change.data.column("phone").to_pylist() == [None]
    assert [len(failed.rows) for failed in result.failed] == [1]


@pytest.mark.usefixtures("plugin")
def test_an_error_of_ours_goes_on_to_the_capture() -> None:
    with pytest.raises(Exception, match="the service is away"):
        Masker(config(phone={"type": "reversed"}), None).mask(batch({"phone": "away"}, {"phone": "x"}))


@pytest.mark.usefixtures("plugin")
def test_a_default_that_cannot_be_masked_ends_the_capture() -> None:
    columns = tuple(replace(c, initial_default="bad") if c.name == "phone" else c for c in TABLE.columns)
    with pytest.raises(DataError, match=r"failed on the default of shop\.customers\.phone \(ValueError\)"):
        Masker(config(phone={"type": "reversed"}), None).mask(batch({}, table=replace(TABLE, columns=columns)))


def test_a_masked_block_reads_as_its_table_says() -> None:
    change = masked(config(phone=HASH, id=HASH), batch({"phone": "0171"}))
    assert read_block(change.to_block()) == change


def test_a_column_that_the_source_renames_stays_masked() -> None:
    phone = replace(TABLE.column("phone"), name="mobile", born_as="phone")
    renamed = replace(TABLE.with_version(1), columns=tuple(phone if c.name == "phone" else c for c in TABLE.columns))
    masks = config(phone={"type": "constant", "value": "-"})
    change = masked(masks, batch({"mobile": "0171"}, table=renamed))
    assert change.data.column("mobile").to_pylist() == ["-"]
    assert change.table.column("mobile").identity == "phone"
    end = Masker(masks, None).mask(End(TABLE, renamed, 1, 1)).change
    assert isinstance(end, End)
    assert end.successor == change.table
