//! Files of `HBase`'s write-ahead log: bytes in, Arrow batches of entries and cells out.
//!
//! ```text
//! file     = "PWAL" | length (varint) | header (protobuf) | entry, entry, … | trailer, when the writer closed it
//! entry    = length (varint) | key (protobuf) | cell, cell, … as many as the key says
//! trailer  = message (protobuf, empty: no bytes) | its length u32 (0) | "LAWP"                      all numbers big-endian
//!
//! header   1 compressed | 2 key of encryption | 3 tags compressed | 5 class of the codec | 6 values compressed | 7 algorithm
//! key      1 region (encoded name) | 2 table | 3 sequence | 4 write time, ms | 6 scopes (1 family) | 7 number of cells
//!          | 9 nonce group | 10 nonce, both signed
//!
//! cell     = length u32 | length of key u32 | length of value u32 | key | value | [length of tags u16 | tags]
//!   key    = length u16 | row | length u8 | family | qualifier | timestamp i64 | kind u8
//! packed   = lengths of key, value and tags (varint) | row, family, qualifier (text) | timestamp i64 | kind u8
//!            | value | tags                      value: as it is, or length (varint) and packed (values.rs)
//!   text   = ff | length (varint) | bytes, which then have the next number, or that of the one used least lately
//!          | number u16, at most 7ffe            rows and names of regions and tables: 32,767 numbers; families, qualifiers: 127
//!   tags   = as they are, or each as a text, without its length
//!
//! kind     4 put | 8 delete one version | 10 delete all of a family with one timestamp | 12 delete a column | 14 delete a family
//! ```
//! A length of zero where an entry should begin is the trailer, the beginning of it, or nothing yet.
//!
//! Crash story: a file grows at its end while it is read, and a writer that dies leaves it anywhere. So an entry counts when its last byte
//! is there, and reading one in part leaves nothing behind: columns are cut back and moves in dictionaries are taken back. What is not
//! whole at the end of a file that nobody writes any more was never acknowledged. A compressed file can only be read from its beginning, as its
//! dictionaries stand nowhere; an entry before `start` then is read and not handed out.

mod batch;
mod cells;
mod compression;
mod dictionary;
pub mod events;
#[cfg(fuzzing)]
pub mod fuzzing;
mod header;
mod key;
pub mod python;
mod reader;
mod values;
mod wire;
