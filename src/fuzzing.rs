//! Bodies of the fuzz targets, compiled by every build so that an API change cannot leave them behind.
//! One function a target; each takes foreign octets and must not panic.
