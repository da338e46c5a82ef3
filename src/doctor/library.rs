//! Whether a library is installed: it is loaded and let go.
#![allow(unsafe_code)]

use std::ffi::CString;

/// One of these can be loaded; its name.
pub fn first<'a>(names: &[&'a str]) -> Option<&'a str> {
    names.iter().copied().find(|name| loads(name))
}

fn loads(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a C string. Libraries that are asked for are those of drivers and SDKs; their initialisers have no conditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: opened above, and nothing of it is in use.
    unsafe { libc::dlclose(handle) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_found() {
        assert_eq!(first(&["libnosuch.so.1", "libc.so.6", "libm.so.6"]), Some("libc.so.6"));
        assert_eq!(first(&["libnosuch.so.1", "bad\0name"]), None);
    }
}
