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
    Ok(Found { gpu: None, why: "not used: this gdmedia was built without CUDA".into() })
}
