//! One file an essence: format parameters become a typed value, or a reason why they cannot.

pub(crate) mod audio;
pub(crate) mod compressed;
pub(crate) mod data;
pub(crate) mod foreign;
pub(crate) mod video;
