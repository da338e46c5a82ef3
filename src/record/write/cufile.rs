//! cuFile
