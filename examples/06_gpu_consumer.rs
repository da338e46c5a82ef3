//! Another process that uses the frames of a GPU where they are: for each, how late it comes and how bright it is.
//!
//!     gdmedia --sdp stream.sdp --gpu require --headless --export cuda-ipc=/tmp/frames &
//!     cargo run --release --example 06_gpu_consumer -- /tmp/frames 100

use gdmedia::mem::Region;
use gdmedia::sink::export::{Consumer, ExportKind, Hello};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: 06_gpu_consumer SOCKET [FRAMES]")?;
    let frames = args.next().map_or(Ok(u64::MAX), |n| n.parse())?;
    let mut consumer = Consumer::connect(Path::new(&path))?;
    let hello = consumer.hello().clone();
    println!(
        "{} {}x{} on {}: {} frames by {}",
        hello.output, hello.width, hello.height, hello.gpu.name, hello.count, hello.kind
    );
    // A dma-buf is for other drivers than CUDA (V4L2, DRM, Vulkan): it is shown, and its frames are passed on.
    let mapped = match hello.kind {
        ExportKind::CudaIpc => Some(consumer.map()?),
        ExportKind::DmaBuf => {
            let mut file = File::from(consumer.take_dma_buf().ok_or("no dma-buf came")?);
            println!("a dma-buf of {} octets", file.seek(SeekFrom::End(0))?);
            None
        }
    };
    let luma = *hello.planes.first().ok_or("a picture without planes")?;
    let mut pinned = mapped.as_ref().map(|m| Region::pinned(m.gpu(), luma.stride * luma.rows)).transpose()?;

    for _ in 0..frames {
        let Some(offer) = consumer.next()? else { break };
        let late_us = late_ns(offer.last_arrival.0)? / 1000;
        let mut text = format!("frame {} index {} after {late_us} us", offer.number, offer.index);
        if let (Some(mapped), Some(pinned)) = (&mapped, &mut pinned)
            && let Some(octets) = mapped.plane(0)
        {
            // Waits for the frame's event on the GPU, then copies.
            mapped.read(&offer, octets, pinned)?;
            let rows = pinned.as_slice().chunks(luma.stride).take(luma.rows).map(|row| &row[..luma.row_octets]);
            text += &format!(" mean {:.3}", mean(&hello, rows));
        }
        println!("{text} complete {} skipped {}", offer.complete, offer.skipped);
        consumer.release(offer)?;
    }
    Ok(())
}

/// Mean of the first plane's samples if they are 16-bit integers, of its octets else.
fn mean<'a>(hello: &Hello, rows: impl Iterator<Item = &'a [u8]>) -> f64 {
    let wide = hello.sample == "uint16";
    let (mut sum, mut samples) = (0u64, 0u64);
    for row in rows {
        if wide {
            sum += row.chunks_exact(2).map(|s| u64::from(u16::from_le_bytes([s[0], s[1]]))).sum::<u64>();
        } else {
            sum += row.iter().map(|&octet| u64::from(octet)).sum::<u64>();
        }
        samples += row.len() as u64 / if wide { 2 } else { 1 };
    }
    sum as f64 / samples.max(1) as f64
}

/// Nanoseconds since a TAI instant, if less than a second: TAI and UTC differ by whole seconds.
fn late_ns(tai: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    Ok((now as i64 - tai as i64).rem_euclid(1_000_000_000) as u64)
}
