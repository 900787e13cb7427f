//! The native decoder of `MySQL` and `MariaDB` binary logs: whole buffers in, Arrow batches out.
//!
//! ```text
//! file = fe 62 69 6e | event, event, …            event = header (19 bytes) | body | CRC32
//!
//!   format description → (previous GTIDs) → transaction, transaction, … → rotate or stop
//!   transaction = GTID | BEGIN | (table map… | row event…)… | XID or COMMIT       or      GTID | one DDL statement
//! ```
//! Crash story: the decoder holds nothing that is not in the log. Everything between two boundaries can be decoded again, with
//! the same ids, from the boundary before; a boundary is handed out only together with all rows before it. A file that ends in
//! the middle of an event is one that is being written: those bytes are left for the next time.
//!
//! How bytes become columns: a table map is read once into a `Table`; its columns (`columns`, the one table of types) make
//! `lanes`. Row images are taken apart by sizes alone (`image`, `cells`), then each lane carries the values of its column into an
//! Arrow array (`rows`, `pending`). Tables that nobody wants are stepped over.

mod addresses;
pub(crate) mod cells;
pub(crate) mod charset;
#[rustfmt::skip]
mod charset_pages;
pub(crate) mod columns;
mod compressed;
pub(crate) mod cursor;
mod decimal;
mod decoder;
pub(crate) mod definition;
mod event;
pub(crate) mod fault;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gathered;
mod gtid;
mod image;
pub(crate) mod include;
mod inflate;
mod json;
mod json_diff;
mod key;
pub(crate) mod lanes;
pub(crate) mod notes;
mod nulls;
mod payload;
mod pending;
mod place;
pub mod python;
mod refusals;
mod row_event;
pub(crate) mod rows;
pub(crate) mod scalars;
mod skim;
mod statement;
mod strings;
pub(crate) mod table_map;
mod tables;
pub(crate) mod temporal;
pub(crate) mod texts;
pub(crate) mod utf8;
