//! Words for people and programs on standard error.

/// Like `eprintln!`, but a standard error that is closed or full ends nothing: the media matter more than the words.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr().lock(), format_args!("{}\n", format_args!($($words)*)));
    }};
}

pub(super) use say;
