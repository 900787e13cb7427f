//! The rows that a `MySQL` or `MariaDB` server answers to a prepared SELECT: raw bytes of the connection in, Arrow batches out.
//!
//! ```text
//! packet  = length u24 | number u8 | payload          a payload of 2^24 - 1 bytes goes on in the next packet
//! answer  = count of columns (lenenc) | column, column, … | end | row, row, … | end        each in a packet of its own
//!
//! column  = catalog, schema, table, table, name, name (lenenc strings) | 0c | collation u16 | length u32 | type u8 | flags u16
//!           | decimals u8 | 0 0
//! row     = 00 | bitmap of nulls (the first column has bit 2) | values of the columns that are not null
//! end     = fe | warnings u16 | status u16            error = ff | code u16 | '#', SQL state (5) | text
//!
//! value   = numbers: 1, 2, 4 or 8 bytes LE            texts, bytes, DECIMAL, BIT: lenenc length, bytes
//!           DATE, DATETIME, TIMESTAMP: length u8 (0, 4, 7, 11) | year u16, month, day | hour, minute, second | microsecond u32
//!           TIME: length u8 (0, 8, 12) | negative u8, days u32, hour, minute, second | microsecond u32
//! ```
//! What the values become is the binlog decoder's: its lanes, character sets, notes and types are used, so that a row is the same
//! whether it was selected or captured. Where the two forms of a type differ, `values` reads the one of the connection.
//!
//! The server must send texts in the sets that columns have (`character_set_results=NULL`), and TIMESTAMP in UTC. Packets end as
//! clients without `CLIENT_DEPRECATE_EOF` get them.
//!
//! Crash story: nothing is kept beyond a batch. An answer that breaks off is asked for again by who wants the rows.

pub mod catalogue;
mod columns;
#[cfg(fuzzing)]
pub mod fuzzing;
mod packets;
pub mod python;
mod reader;
mod values;
