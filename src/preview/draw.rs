//! Pictures as files: JPEG, PNG, and scopes as PNG of few colours.

use crate::scope::{LEVELS, Scope};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// JPEG of R G B A; `None` where it has no columns or rows, or more than 65 535.
pub fn jpeg_rgba(octets: &[u8], width: u32, height: u32, quality: u8) -> Option<Vec<u8>> {
    // Colour at half the columns and rows: it is looked at, not measured.
    jpeg(octets, width, height, ColorType::Rgba, SamplingFactor::F_2_2, quality)
}

/// JPEG of R G B with all of its colour's rows.
pub fn jpeg_rgb(octets: &[u8], width: u32, height: u32, quality: u8) -> Option<Vec<u8>> {
    jpeg(octets, width, height, ColorType::Rgb, SamplingFactor::F_2_1, quality)
}

fn jpeg(
    octets: &[u8],
    width: u32,
    height: u32,
    kind: ColorType,
    sampling: SamplingFactor,
    quality: u8,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(octets.len() / 16 + 1024);
    let mut encoder = Encoder::new(&mut out, quality.clamp(1, 100));
    encoder.set_sampling_factor(sampling);
    encoder.encode(octets, u16::try_from(width).ok()?, u16::try_from(height).ok()?, kind).ok()?;
    Some(out)
}

/// PNG of R G B.
pub fn png_rgb(octets: &[u8], width: u32, height: u32) -> Option<Vec<u8>> {
    png(octets, width, height, png::ColorType::Rgb, None)
}

fn png(octets: &[u8], width: u32, height: u32, kind: png::ColorType, palette: Option<[&[u8]; 2]>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(octets.len() / 4 + 1024);
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(kind);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    if let Some([colours, alpha]) = palette {
        encoder.set_palette(colours);
        encoder.set_trns(alpha);
    }
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(octets).ok()?;
    writer.finish().ok()?;
    Some(out)
}

/// Degrees of brightness of a trace, the dark one included.
const DEGREES: usize = 64;
/// Of one trace: the glow of a monitor's screen. Of three: red, green, blue.
const LUMA: [u8; 3] = [196, 255, 214];
const PRIMARIES: [[u8; 3]; 3] = [[255, 92, 92], [96, 235, 120], [110, 150, 255]];

/// The waveform: level 255 on top, traces side by side; what is dark is transparent.
pub fn waveform(scope: &Scope) -> Option<Vec<u8>> {
    let width = scope.traces * scope.columns;
    let mut octets = vec![0; width * LEVELS];
    for trace in 0..scope.traces {
        for column in 0..scope.columns {
            let counts = scope.column(trace, column);
            let all = counts.iter().sum();
            for (level, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let at = (LEVELS - 1 - level) * width + trace * scope.columns + column;
                octets[at] = (trace * DEGREES) as u8 + degree(count, all);
            }
        }
    }
    let inks: &[[u8; 3]] = if scope.traces == 1 { &[LUMA] } else { &PRIMARIES };
    indexed(&octets, width, LEVELS, inks)
}

/// The vectorscope: Cb to the right, Cr upwards; what is dark is transparent.
pub fn vectorscope(scope: &Scope) -> Option<Vec<u8>> {
    if scope.vectorscope.is_empty() {
        return None;
    }
    let all = scope.vectorscope.iter().sum();
    let mut octets = vec![0; LEVELS * LEVELS];
    for (cell, &count) in scope.vectorscope.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (b, r) = (cell / LEVELS, cell % LEVELS);
        octets[(LEVELS - 1 - r) * LEVELS + b] = degree(count, all);
    }
    indexed(&octets, LEVELS, LEVELS, &[LUMA])
}

/// How bright `count` of `all` is: 16 for a single one, as bright as can be for all; by the logarithm between them, for a
/// scope is read for where something is, and only then for how much.
fn degree(count: u32, all: u32) -> u8 {
    const LEAST: f32 = 16.0;
    let part = (1.0 + count as f32).log2() / (1.0 + all.max(count) as f32).log2();
    (LEAST + part * (DEGREES as f32 - 1.0 - LEAST)) as u8
}

fn indexed(octets: &[u8], width: usize, height: usize, inks: &[[u8; 3]]) -> Option<Vec<u8>> {
    let part = |degree: usize| degree as f32 / (DEGREES - 1) as f32;
    let colours: Vec<u8> = inks.iter().flat_map(|ink| (0..DEGREES).flat_map(|_| *ink)).collect();
    let alpha: Vec<u8> = inks.iter().flat_map(|_| (0..DEGREES).map(|d| (part(d) * 255.0) as u8)).collect();
    png(octets, width as u32, height as u32, png::ColorType::Indexed, Some([&colours, &alpha]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R G B A of a PNG.
    fn decoded(file: &[u8]) -> (u32, u32, Vec<[u8; 4]>) {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut octets = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut octets).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgba);
        (info.width, info.height, octets.as_chunks().0.to_vec())
    }

    fn scope(traces: usize) -> Scope {
        let colour = if traces == 1 { LEVELS * LEVELS } else { 0 };
        Scope { columns: 2, traces, waveform: vec![0; traces * 2 * LEVELS], vectorscope: vec![0; colour] }
    }

    #[test]
    fn traces_lie_where_they_should() {
        let mut one = scope(1);
        one.waveform[LEVELS + 235] = 10;
        one.waveform[16] = 1;
        one.waveform[17] = 9;
        one.vectorscope[212 * LEVELS + 120] = 3;
        let (width, height, pixels) = decoded(&waveform(&one).unwrap());
        assert_eq!((width, height), (2, 256));
        let at = |x: usize, level: usize| pixels[(255 - level) * 2 + x];
        assert_eq!(at(1, 235), [196, 255, 214, 255], "all of a column is as bright as can be");
        assert!(at(0, 16)[3] > 60 && at(0, 16)[3] < at(0, 17)[3], "{:?} {:?}", at(0, 16), at(0, 17));
        assert_eq!(pixels.iter().filter(|p| p[3] > 0).count(), 3);
        let (_, _, pixels) = decoded(&vectorscope(&one).unwrap());
        let lit: Vec<usize> = (0..pixels.len()).filter(|&n| pixels[n][3] > 0).collect();
        assert_eq!(lit, [(255 - 120) * 256 + 212]);

        let mut three = scope(3);
        three.waveform[(2 * 2 + 1) * LEVELS + 255] = 4;
        let (width, _, pixels) = decoded(&waveform(&three).unwrap());
        assert_eq!((width, pixels[5]), (6, [110, 150, 255, 255]));
        assert_eq!(vectorscope(&three), None);
    }

    #[test]
    fn a_picture_without_columns_is_none() {
        assert!(jpeg_rgba(&[], 0, 0, 80).is_none());
        assert!(jpeg_rgba(&[0; 4], 70_000, 1, 80).is_none());
        assert!(jpeg_rgba(&[0; 4], 1, 1, 80).is_some_and(|file| file.starts_with(&[0xff, 0xd8])));
    }
}
