//! Timing of ST 2110-10 and -21, and `analyze`.

mod model;
