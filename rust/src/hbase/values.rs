//! Values that are packed one by one. The output is never longer than the cell says, and room is made only as bytes come out.
//!
//! ```text
//! gzip            a member of its own for each value, also for an empty one
//! snappy, lz4     Hadoop's blocks: length of what it unpacks to u32 | (length u32 | packed bytes), … until that much came out
//! zstd            a frame by itself (Hadoop's codec), or in Hadoop's blocks (HBase's)
//! ```

use std::io::Read;

use flate2::bufread::GzDecoder;

use super::header::Packing;
use super::wire::{Bytes, Take, bad, whole};
use crate::binlog::fault::Fault;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Appends what `packed` unpacks to, which must be `length` bytes.
pub fn unpack(out: &mut Vec<u8>, packed: &[u8], packing: Packing, length: usize) -> Take<()> {
    let start = out.len();
    match packing {
        Packing::Plain => out.extend_from_slice(packed),
        Packing::Gzip => gunzip(out, packed, length)?,
        Packing::Zstd if packed.starts_with(ZSTD_MAGIC) => zstd_frame(out, packed, length)?,
        Packing::Snappy | Packing::Lz4 | Packing::Zstd => {
            whole("a compressed value", blocks(out, packed, packing, length))?;
        }
    }
    let came = out.len() - start;
    if came == length { Ok(()) } else { bad(format!("a value unpacks to {came} bytes where {length} were written")) }
}

fn gunzip(out: &mut Vec<u8>, packed: &[u8], length: usize) -> Take<()> {
    if packed.is_empty() && length == 0 {
        return Ok(());
    }
    if !packed.starts_with(GZIP_MAGIC) {
        return Err(Fault::refused(
            "its values are one gzip stream that goes on from cell to cell, which only HBase before 2.5.9 and 2.6.1 writes",
            "update HBase, or set hbase.regionserver.wal.value.enablecompression to false",
        )
        .into());
    }
    read_into(out, GzDecoder::new(packed), length)
}

fn zstd_frame(out: &mut Vec<u8>, packed: &[u8], length: usize) -> Take<()> {
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|error| broken(&error))?;
    read_into(out, decoder, length)
}

/// One byte more than is wanted is asked for, so that a longer stream shows and a checksum at its end is read.
fn read_into(out: &mut Vec<u8>, stream: impl Read, length: usize) -> Take<()> {
    let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
    stream.take(most).read_to_end(out).map_err(|error| broken(&error))?;
    Ok(())
}

fn blocks(out: &mut Vec<u8>, packed: &[u8], packing: Packing, length: usize) -> Take<()> {
    let (start, mut bytes) = (out.len(), Bytes::new(packed));
    while bytes.left() > 0 {
        let block_end = out.len() + bytes.length()?;
        if block_end - start > length {
            return bad(format!("a block of {} bytes in a value of {length}", block_end - out.len()));
        }
        while out.len() < block_end {
            let size = bytes.length()?;
            let chunk = bytes.take(size)?;
            let before = out.len();
            block(out, chunk, packing, block_end - before)?;
            if out.len() == before {
                return bad("a block that unpacks to nothing");
            }
        }
    }
    Ok(())
}

fn block(out: &mut Vec<u8>, packed: &[u8], packing: Packing, most: usize) -> Take<()> {
    let unpacked = match packing {
        Packing::Snappy => {
            let says = snap::raw::decompress_len(packed).map_err(|error| broken(&error))?;
            if says > most {
                return bad(format!("a block that unpacks to {says} bytes where {most} were written"));
            }
            snap::raw::Decoder::new().decompress_vec(packed).map_err(|error| broken(&error))?
        }
        Packing::Lz4 => lz4_flex::block::decompress(packed, lz4_room(packed, most)).map_err(|error| broken(&error))?,
        _ => return zstd_frame(out, packed, most),
    };
    out.extend_from_slice(&unpacked);
    Ok(())
}

/// LZ4 makes at most 255 bytes of one, so what a cell claims does not make more room than its bytes can fill.
fn lz4_room(packed: &[u8], most: usize) -> usize {
    packed.len().saturating_mul(255).min(most)
}

#[cold]
fn broken(error: &dyn std::fmt::Display) -> super::wire::Halt {
    Fault::corrupt(format!("a compressed value cannot be unpacked: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(packed: &[u8], packing: Packing, length: usize) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        unpack(&mut out, packed, packing, length).ok()?;
        out.strip_prefix(b"before").map(<[u8]>::to_vec)
    }

    fn sized(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap_or_default().to_be_bytes()[..], bytes].concat()
    }

    fn in_blocks(parts: &[Vec<u8>], length: u32) -> Vec<u8> {
        let chunks: Vec<u8> = parts.iter().flat_map(|part| sized(part)).collect();
        [&length.to_be_bytes()[..], &chunks].concat()
    }

    #[test]
    fn blocks_of_hadoop() {
        let value = b"abcabcabcabcabcabc".repeat(20);
        let length = u32::try_from(value.len()).unwrap_or_default();
        let (head, tail) = value.split_at(100);
        for packing in [Packing::Snappy, Packing::Lz4, Packing::Zstd] {
            let pack = |part: &[u8]| match packing {
                Packing::Snappy => snap::raw::Encoder::new().compress_vec(part).unwrap_or_default(),
                Packing::Lz4 => lz4_flex::block::compress(part),
                _ => zstd::bulk::compress(part, 1).unwrap_or_default(),
            };
            let packed = in_blocks(&[pack(head), pack(tail)], length);
            assert_eq!(unpacked(&packed, packing, value.len()).as_ref(), Some(&value));
            assert_eq!(unpacked(&[], packing, 0), Some(Vec::new()));
            assert_eq!(unpacked(&packed, packing, value.len() - 1), None);
            assert_eq!(unpacked(&packed, packing, value.len() + 1), None);
            for end in 1..packed.len() {
                assert_eq!(packed.get(..end).and_then(|cut| unpacked(cut, packing, value.len())), None);
            }
        }
    }

    #[test]
    fn frames_of_zstd_by_themselves() {
        let packed = zstd::bulk::compress(b"abc", 1).unwrap_or_default();
        assert_eq!(unpacked(&packed, Packing::Zstd, 3), Some(b"abc".to_vec()));
        assert_eq!(unpacked(&packed, Packing::Zstd, 2), None);
    }

    #[test]
    fn a_gzip_stream_over_cells_is_refused() {
        assert_eq!(unpacked(&[0x4a, 0x4c], Packing::Gzip, 1), None);
    }
}
