//! Unix sockets between programs: descriptors that go along, and the place in the file system.

pub mod descriptor;
pub mod listener;
