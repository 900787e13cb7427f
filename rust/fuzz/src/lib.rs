//! What the targets share. Each reads one input:
//!
//! ```text
//! binlog_file     options u8 | bytes of a file, from the magic on
//! binlog_events   options u8 | chunk, chunk, …          put together as a file
//! binlog_wire     options u8 | chunk, chunk, …          put together as the packets of a connection
//! gtid_set        form u8    | text or wire form
//! rows_wire       options u8 | columns and rows (`answers`) or bytes of a connection
//! bodies          form u8    | records of separated fields
//! ```
//! A mutation never fits a checksum, and hardly ever a length. So chunks have neither: `chunks` makes events of them that are
//! right from the outside, and what reads their insides is reached at once.

pub mod answers;
pub mod chunks;
pub mod drive;
