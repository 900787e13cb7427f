//! UMS JSON, the form of changes on the wire: Arrow in, messages out, and back.
//!
//! ```text
//! {"protocol": {"type": kind, "version": …},
//!  "schema":   {"namespace": seven parts, "fields": [{"name", "type", "nullable", "encoded", …}, …], …},
//!  "payload":  [{"tuple": [value, …]}, …]}                 a value per field, in the order of the fields
//! ```
//! docs/formats/ums.md says what each member and value is. Python (codec/ums.py) writes and reads `protocol` and `schema`, which
//! are the same for all messages of a table version, and plans with them which value goes where; this module writes (`encode`,
//! `writers`) and reads (`parse`, `lanes`) the payload, value by value, and finds its way in the envelope.
//!
//! Crash story: nothing is kept between calls but plans, which come from the messages themselves. A message is read whole or refused
//! whole, with the byte at which it stops making sense; a call with a refused message hands out nothing.

mod calendar;
mod decimal;
mod encode;
mod lanes;
mod parse;
pub mod python;
pub(crate) mod text;
mod tuples;
mod walk;
mod writers;
