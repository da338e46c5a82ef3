//! The calls, types and constants of the user's header.
//!
//! Each call goes through the C shim, so that it makes no difference whether the header has it as a function, an inline
//! function or a macro; a stream id is passed by address. Types are opaque: only their size and alignment are known.
//!
//! Nothing here may be called before [`crate::Library::load`] has returned: until then the calls lead nowhere.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unsafe_op_in_unsafe_fn)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// What the build found: see `build/late.rs`.
pub(crate) mod built {
    include!(concat!(env!("OUT_DIR"), "/built.rs"));
}

pub use built::{SONAME, STAND_IN_LIBRARY, VERSION};
