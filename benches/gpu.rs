//! Measurements that need a GPU. Each prints a table in Markdown for RESULTS.md.
//!
//! | word | what |
//! | --- | --- |
//! | `kernels` | every conversion, against copies of as many octets |
//! | `pcie` | from pinned rings to finished frames, many streams, against a plain copy |
//! | `latency` | from a frame's last packet to the finished frame, over loopback |
//! | `overlap` | the stages one after the other, and all at once |
//! | `soak` | a long run, whose memory must stay flat |
//!
//! ```text
//! cargo bench --bench gpu -- pcie --seconds 3
//! cargo bench --bench gpu -- latency --streams 4 --seconds 60 --mode sub    # also: whole, cpu
//! ```
//!
//! `latency` and `soak` start `gdmedia send`; GDMEDIA_SEND names the program (default: `gdmedia` beside this one).
#![allow(unsafe_code)]

#[path = "gpu/kernels.rs"]
mod kernels;
#[path = "gpu/latency.rs"]
mod latency;
#[path = "gpu/live.rs"]
mod live;
#[path = "gpu/overlap.rs"]
mod overlap;
#[path = "gpu/pcie.rs"]
mod pcie;
#[path = "gpu/soak.rs"]
mod soak;
#[path = "gpu/synthetic.rs"]
mod synthetic;

use std::time::Duration;

const USAGE: &str =
    "cargo bench --bench gpu -- kernels [text in the names of conversions] | pcie | latency | overlap | soak
  --seconds S   --frames N   --streams N   --mode sub|whole|cpu   --format 2160p59.94   --gpu N";

/// What the command line says.
#[derive(Clone, Debug)]
struct Args {
    seconds: f64,
    frames: u64,
    streams: usize,
    mode: String,
    format: String,
    gpu: u32,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench" && a != "--test").collect();
    // A plain `cargo bench` or `cargo test --benches` says what there is.
    let Some((what, rest)) = words.split_first() else { return println!("{USAGE}") };
    if what == "kernels" {
        return kernels::run(rest.first().map_or("", String::as_str));
    }
    let Some(args) = parse(rest) else {
        eprintln!("{USAGE}");
        std::process::exit(64);
    };
    let gpu = match gdmedia::gpu::Gpu::open(args.gpu) {
        Ok(gpu) => gpu,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    println!("{what}: {}", gpu.describe());
    match what.as_str() {
        "pcie" => pcie::run(&gpu, &args),
        "latency" => latency::run(&gpu, &args),
        "overlap" => overlap::run(&gpu, &args),
        "soak" => soak::run(&gpu, &args),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(64);
        }
    }
}

fn parse(words: &[String]) -> Option<Args> {
    let mut args =
        Args { seconds: 3.0, frames: 300, streams: 1, mode: "sub".into(), format: "2160p59.94".into(), gpu: 0 };
    for pair in words.chunks(2) {
        let [name, value] = pair else { return None };
        match name.as_str() {
            "--seconds" => args.seconds = value.parse().ok()?,
            "--frames" => args.frames = value.parse().ok()?,
            "--streams" => args.streams = value.parse().ok()?,
            "--mode" => args.mode = value.clone(),
            "--format" => args.format = value.clone(),
            "--gpu" => args.gpu = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(args)
}

impl Args {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
