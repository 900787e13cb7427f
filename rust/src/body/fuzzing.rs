//! What the fuzz target `bodies` needs of this module.
pub use super::lines::{Enclosed, Lines};
pub use super::separated::{Record, Separated};
