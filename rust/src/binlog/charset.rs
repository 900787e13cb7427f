//! Collation ids of `MySQL` and `MariaDB`, and the bytes of their character sets into Unicode.

use std::borrow::Cow;

use encoding_rs as enc;
use encoding_rs::Encoding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Bytes without characters: BINARY, VARBINARY, BLOB.
    Binary,
    /// utf8mb4, utf8mb3 and ascii: the bytes are UTF-8 already.
    Utf8 {
        max_bytes: u8,
    },
    /// A set that `encoding_rs` has.
    Coded {
        encoding: &'static Encoding,
        max_bytes: u8,
    },
    /// ISO 8859-9, which the web (and so `encoding_rs`) has only as windows-1254.
    Latin5,
    Utf32,
}

/// Names of character sets, each with one of its collations; of two that are the same here, the one that a name is made of is first.
const NAMES: [(&str, u64); 33] = [
    ("utf8mb4", 45),
    ("utf8mb3", 33),
    ("utf8", 33),
    ("latin1", 8),
    ("ascii", 11),
    ("binary", 63),
    ("latin2", 9),
    ("latin5", 30),
    ("latin7", 41),
    ("koi8r", 7),
    ("koi8u", 22),
    ("cp1250", 26),
    ("cp1251", 51),
    ("cp1256", 57),
    ("cp1257", 59),
    ("cp866", 36),
    ("greek", 25),
    ("hebrew", 16),
    ("macroman", 39),
    ("tis620", 18),
    ("big5", 1),
    ("sjis", 13),
    ("cp932", 95),
    ("euckr", 19),
    ("gbk", 28),
    ("gb2312", 24),
    ("gb18030", 248),
    ("ujis", 12),
    ("eucjpms", 97),
    ("ucs2", 35),
    ("utf16", 54),
    ("utf16le", 56),
    ("utf32", 60),
];

impl Charset {
    /// A collation of the character set of this name.
    pub fn collation_of(name: &str) -> Option<u64> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, collation)| collation)
    }

    /// The name of the character set of a collation.
    pub fn name_of(collation: u64) -> Option<&'static str> {
        let charset = Self::of_collation(collation)?;
        NAMES.iter().find(|&&(_, known)| Self::of_collation(known) == Some(charset)).map(|&(name, _)| name)
    }

    /// The character set of a collation; None when it is not known here.
    pub fn of_collation(id: u64) -> Option<Self> {
        let coded = |encoding, max_bytes| Some(Self::Coded { encoding, max_bytes });
        match id {
            63 => Some(Self::Binary),
            45 | 46 | 224..=247 | 255..=323 | 608..=611 | 2304..=2559 => Some(Self::Utf8 { max_bytes: 4 }),
            33 | 76 | 83 | 192..=215 | 223 | 576..=579 | 2048..=2303 => Some(Self::Utf8 { max_bytes: 3 }),
            11 | 65 => Some(Self::Utf8 { max_bytes: 1 }),
            // MySQL's latin1 is cp1252 with the five holes kept as C1 controls, as windows-1252 of the web is.
            5 | 8 | 15 | 31 | 47 | 48 | 49 | 94 => coded(enc::WINDOWS_1252, 1),
            2 | 9 | 21 | 27 | 77 => coded(enc::ISO_8859_2, 1),
            7 | 74 => coded(enc::KOI8_R, 1),
            14 | 23 | 50 | 51 | 52 => coded(enc::WINDOWS_1251, 1),
            16 | 71 => coded(enc::ISO_8859_8, 1),
            18 | 89 => coded(enc::WINDOWS_874, 1),
            20 | 41 | 42 | 79 => coded(enc::ISO_8859_13, 1),
            22 | 75 => coded(enc::KOI8_U, 1),
            25 | 70 => coded(enc::ISO_8859_7, 1),
            26 | 34 | 44 | 66 | 99 => coded(enc::WINDOWS_1250, 1),
            29 | 58 | 59 => coded(enc::WINDOWS_1257, 1),
            36 | 68 => coded(enc::IBM866, 1),
            39 | 53 => coded(enc::MACINTOSH, 1),
            57 | 67 => coded(enc::WINDOWS_1256, 1),
            30 | 78 => Some(Self::Latin5),
            1 | 84 => coded(enc::BIG5, 2),
            13 | 88 | 95 | 96 => coded(enc::SHIFT_JIS, 2),
            19 | 85 => coded(enc::EUC_KR, 2),
            24 | 28 | 86 | 87 => coded(enc::GBK, 2),
            12 | 91 | 97 | 98 => coded(enc::EUC_JP, 3),
            248..=250 => coded(enc::GB18030, 4),
            35 | 90 | 128..=151 | 159 | 640..=643 | 2560..=2815 => coded(enc::UTF_16BE, 2),
            54 | 55 | 101..=124 | 672..=675 | 2816..=3071 => coded(enc::UTF_16BE, 4),
            56 | 62 => coded(enc::UTF_16LE, 4),
            60 | 61 | 160..=183 | 736..=739 | 3072..=3327 => Some(Self::Utf32),
            // MariaDB: the NO PAD twin of a collation has its id + 1024.
            1025..=2047 => Self::of_collation(id - 1024),
            _ => None,
        }
    }

    /// The most bytes that one character takes.
    pub fn max_bytes(self) -> usize {
        match self {
            Self::Binary | Self::Latin5 => 1,
            Self::Utf8 { max_bytes } | Self::Coded { max_bytes, .. } => usize::from(max_bytes),
            Self::Utf32 => 4,
        }
    }

    /// The text of the bytes; `Err` holds the text with marks where bytes mean nothing in this set.
    pub fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, String> {
        match self {
            Self::Binary | Self::Utf8 { .. } => match simdutf8::basic::from_utf8(bytes) {
                Ok(text) => Ok(Cow::Borrowed(text)),
                Err(_) => Err(String::from_utf8_lossy(bytes).into_owned()),
            },
            Self::Coded { encoding, .. } => encoding
                .decode_without_bom_handling_and_without_replacement(bytes)
                .ok_or_else(|| encoding.decode_without_bom_handling(bytes).0.into_owned()),
            Self::Latin5 => Ok(bytes.iter().map(|&byte| latin5(byte)).collect::<String>().into()),
            Self::Utf32 => utf32(bytes).map(Cow::Owned),
        }
    }

    /// As `decode`, where a mark in place of a broken character does no harm (names, labels, SQL).
    pub fn decode_lossy(self, bytes: &[u8]) -> String {
        self.decode(bytes).map_or_else(|marked| marked, Cow::into_owned)
    }
}

fn latin5(byte: u8) -> char {
    match byte {
        0xd0 => 'Ğ',
        0xdd => 'İ',
        0xde => 'Ş',
        0xf0 => 'ğ',
        0xfd => 'ı',
        0xfe => 'ş',
        _ => char::from(byte),
    }
}

fn utf32(bytes: &[u8]) -> Result<String, String> {
    let (units, rest) = bytes.as_chunks::<4>();
    let text: Option<String> = units.iter().map(|&unit| char::from_u32(u32::from_be_bytes(unit))).collect();
    match text {
        Some(text) if rest.is_empty() => Ok(text),
        _ => Err(units
            .iter()
            .map(|&unit| char::from_u32(u32::from_be_bytes(unit)).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(collation: u64, bytes: &[u8]) -> Option<String> {
        Charset::of_collation(collation)?.decode(bytes).ok().map(Cow::into_owned)
    }

    #[test]
    fn one_word_in_each_set() {
        for (collation, bytes, text) in [
            (255, "水渠😀".as_bytes(), "水渠😀"),
            (2304, "é".as_bytes(), "é"),
            (8, b"caf\xe9\x80\x81", "café€\u{81}"),
            (28, b"\xd6\xd0\xce\xc4", "中文"),
            (1, b"\xa4\xa4\xa4\xe5", "中文"),
            (13, b"\x93\xfa\x96\x7b", "日本"),
            (12, b"\xc6\xfc\xcb\xdc", "日本"),
            (19, b"\xc7\xd1", "한"),
            (7, b"\xcd\xc9\xd2", "мир"),
            (51, b"\xec\xe8\xf0", "мир"),
            (30, b"\xd0\xfe", "Ğş"),
            (35, b"\x4e\x2d", "中"),
            (54, b"\xd8\x3d\xde\x00", "😀"),
            (56, b"\x2d\x4e", "中"),
            (60, b"\0\x01\xf6\x00", "😀"),
            (1024 + 45, "é".as_bytes(), "é"),
        ] {
            assert_eq!(decode(collation, bytes).as_deref(), Some(text), "collation {collation}");
        }
    }

    #[test]
    fn names() {
        for (name, collation) in NAMES {
            assert!(Charset::of_collation(collation).is_some(), "{name}");
            assert_eq!(Charset::collation_of(name), Some(collation));
        }
        assert_eq!(
            [255, 192, 5, 63, 2304].map(Charset::name_of),
            ["utf8mb4", "utf8mb3", "latin1", "binary", "utf8mb4"].map(Some)
        );
        assert_eq!(Charset::name_of(9999), None);
    }

    #[test]
    fn broken_bytes_are_never_bent_in_silence() {
        for (collation, bytes) in [(255, &b"a\xff"[..]), (28, b"\xd6"), (54, b"\xd8\x3d"), (60, b"\0\0\0")] {
            assert!(Charset::of_collation(collation).is_some_and(|set| set.decode(bytes).is_err()));
        }
        assert_eq!(Charset::of_collation(9999), None);
    }
}
