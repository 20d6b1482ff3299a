//! x
#![forbid(unsafe_code)]
mod error;
mod negotiate;
pub use error::Error;
pub use negotiate::*;
