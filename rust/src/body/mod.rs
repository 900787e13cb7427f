//! Bodies of loads: messages of a topic become the lines that a store is sent, whole lists at a time, with nothing made in Python for a row.
//!
//! ```text
//! messages     JSON objects (python.rs, by crate::json) · records of separated fields (separated.rs) · columns of text
//!    |  texts of the wanted columns, None where there is none
//!    v
//! lines        JSON      {"id":"7","note":"a \"b\"","at":null}\n       every value is a text, which the store reads by its column's type
//!              CSV       7<separator>a "b"<separator>\N<end>           NULL is \N; enclosed: "a \"b\"" where a value needs it
//! ```
//! A message that cannot be read and a row that the lines cannot hold are left out whole, and told with the number of the message.
#[cfg(fuzzing)]
pub mod fuzzing;
mod lines;
pub mod python;
pub mod separated;
