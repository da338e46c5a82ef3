//! Measurements that need a GPU: `cargo bench --bench gpu -- kernels`. Each prints a table in Markdown.
//!
//! | word | what |
//! | --- | --- |
//! | `kernels` | every conversion, against copies of as many octets |
#![allow(unsafe_code)]

#[path = "gpu/kernels.rs"]
mod kernels;

fn main() {
    // Cargo says `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match words.first().map(String::as_str) {
        Some("kernels") => kernels::run(words.get(1).map_or("", String::as_str)),
        _ => println!("cargo bench --bench gpu -- kernels [text in the names of the conversions]"),
    }
}
