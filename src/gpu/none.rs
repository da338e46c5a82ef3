//! Built without CUDA.

use super::{Choice, Found};
use crate::error::{Error, Kind, Result};

/// There is none.
#[derive(Debug)]
pub enum Gpu {}

/// None, and why.
///
/// # Errors
/// One is required.
pub fn choose(choice: Choice, _interface: Option<&str>) -> Result<Found> {
    if choice.required() {
        return Err(Error::new(Kind::Unavailable, "this gdmedia was built without CUDA")
            .cure("build it with the feature cuda, or run on the CPU (--gpu off)"));
    }
    let why = if choice == Choice::Off { "not used: --gpu off" } else { "none: this gdmedia was built without CUDA" };
    Ok(Found { gpu: None, why: why.into() })
}
