//! What stands before the entries of a file: how it is written, or why it cannot be read.

use super::wire::{Bytes, Field, Take, bad, fields, whole};
use crate::binlog::fault::Fault;

const MAGIC: &[u8] = b"PWAL";
const MAX_BYTES: usize = 1 << 20;
/// Codecs that write cells as drawn in the head of this room, by the last part of their class names.
const CODECS: [&str; 2] = ["WALCellCodec", "IndexedWALEditCodec"];

/// How values are packed, by `HBase`'s own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Plain,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Debug)]
pub struct Header {
    /// Names and keys are in dictionaries.
    pub is_compressed: bool,
    pub tags_compressed: bool,
    pub values: Option<Packing>,
}

impl Header {
    pub fn read(bytes: &mut Bytes<'_>) -> Take<Self> {
        let magic = bytes.rest().get(..MAGIC.len()).unwrap_or(bytes.rest());
        if !MAGIC.starts_with(magic) {
            return bad("it does not begin with PWAL, so it is no write-ahead log of HBase");
        }
        bytes.take(MAGIC.len())?;
        let size = bytes.size()?;
        if size > MAX_BYTES {
            return bad(format!("a header of {size} bytes"));
        }
        let message = bytes.take(size)?;
        whole("the header", Self::of(message))
    }

    fn of(message: &[u8]) -> Take<Self> {
        let (mut is_compressed, mut tags_compressed, mut values_compressed) = (false, false, false);
        let (mut is_encrypted, mut codec, mut algorithm) = (false, &b""[..], 1);
        fields(message, |number, field| {
            match (number, field) {
                (1, Field::Number(flag)) => is_compressed = flag != 0,
                (2, Field::Bytes(key)) => is_encrypted = !key.is_empty(),
                (3, Field::Number(flag)) => tags_compressed = flag != 0,
                (5, Field::Bytes(name)) => codec = name,
                (6, Field::Number(flag)) => values_compressed = flag != 0,
                (7, Field::Number(number)) => algorithm = number,
                _ => {}
            }
            Ok(())
        })?;
        let codec = String::from_utf8_lossy(codec).into_owned();
        let class = codec.rsplit('.').next().unwrap_or_default();
        if is_encrypted || class == "SecureWALCellCodec" {
            return refuse(
                "it is encrypted",
                "switch hbase.regionserver.wal.encryption off for what headrace is to read",
            );
        }
        if !class.is_empty() && !CODECS.contains(&class) {
            return refuse(
                format!("its cells are written by {codec}, which is not known"),
                "set hbase.regionserver.wal.codec to org.apache.hadoop.hbase.regionserver.wal.WALCellCodec",
            );
        }
        let values = if is_compressed && values_compressed { Some(packing(algorithm)?) } else { None };
        Ok(Self { is_compressed, tags_compressed, values })
    }
}

fn packing(algorithm: u64) -> Take<Packing> {
    match algorithm {
        1 => Ok(Packing::Gzip),
        2 => Ok(Packing::Plain),
        3 => Ok(Packing::Snappy),
        4 => Ok(Packing::Lz4),
        6 => Ok(Packing::Zstd),
        other => {
            let name = match other {
                0 => "LZO",
                5 => "BZIP2",
                7 => "LZMA",
                8 => "BROTLI",
                _ => "an unknown algorithm",
            };
            refuse(
                format!("its values are compressed by {name}"),
                "set hbase.regionserver.wal.value.compression.type to gz, snappy, lz4 or zstd",
            )
        }
    }
}

fn refuse<T>(message: impl Into<String>, fix: &str) -> Take<T> {
    Err(Fault::refused(message, fix).into())
}
