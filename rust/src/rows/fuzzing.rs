//! What the fuzz targets (`rust/fuzz`) drive. No other build has this.

pub use super::reader::{Reader, Stop, Stopped};
