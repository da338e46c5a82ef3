//! Plots as SVG: colours and fonts come from the page, so that they follow light and dark.

use super::{Bin, Finite, Limit, Line, MapRow, Plot, Point, escaped, number};
use std::fmt::Write;

/// The picture: its size, and the frame of the values in it.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;
/// Colours that the page has for lines.
const COLOURS: usize = 4;

/// A plot with its heading and legend.
pub(super) fn figure(plot: &Plot) -> String {
    let mut out = String::from("<figure>");
    // Writing into a string does not fail.
    let _ = match plot {
        Plot::Series { title, unit, lines, limits } => {
            heading(&mut out, title, unit).and_then(|()| series(&mut out, title, unit, lines, limits))
        }
        Plot::Histogram { title, unit, bins, limits } => {
            heading(&mut out, title, unit).and_then(|()| histogram(&mut out, title, bins, limits))
        }
        Plot::Map { title, unit, seconds, rows } => {
            heading(&mut out, title, unit).and_then(|()| map(&mut out, title, unit, *seconds, rows))
        }
    };
    out.push_str("</figure>\n");
    out
}

fn heading(out: &mut String, title: &str, unit: &str) -> std::fmt::Result {
    let unit = if unit.is_empty() { String::new() } else { format!(" <span>{}</span>", escaped(unit)) };
    write!(out, "<figcaption>{}{unit}</figcaption>", escaped(title))
}

/// From values to places, in equal or in logarithmic steps.
#[derive(Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    log: bool,
    begin: f64,
    end: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let f = |v: f64| if self.log { v.max(1e-9).ln() } else { v };
        let span = f(self.to) - f(self.from);
        let part = if span.abs() < 1e-300 { 0.5 } else { (f(value) - f(self.from)) / span };
        self.begin + part.clamp(-0.05, 1.05) * (self.end - self.begin)
    }
    fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log {
            let mut ticks = Vec::new();
            let mut decade = 10f64.powf(self.from.max(1e-9).log10().floor());
            while decade <= self.to * 1.0001 && ticks.len() < 40 {
                if decade >= self.from * 0.9999 {
                    ticks.push(decade);
                }
                decade *= 10.0;
            }
            let every = ticks.len().div_ceil(about.max(1)).max(1);
            return ticks.into_iter().step_by(every).collect();
        }
        let step = nice((self.to - self.from) / about.max(1) as f64);
        let first = (self.from / step).ceil();
        let count = ((self.to - first * step) / step + 1e-6).floor().clamp(0.0, 40.0) as usize;
        (0..=count).map(|n| (first + n as f64) * step).collect()
    }
}

/// The next of 1, 2, 5, 10 ...
fn nice(step: f64) -> f64 {
    if step.is_nan() || step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let decade = 10f64.powf(step.log10().floor());
    let m = [1.0, 2.0, 5.0].into_iter().find(|m| m * decade >= step * 0.9999).unwrap_or(10.0);
    m * decade
}

fn y_axis(from: f64, to: f64, log: bool) -> Axis {
    Axis { from, to, log, begin: HEIGHT - BOTTOM, end: TOP }
}

fn x_axis(from: f64, to: f64, log: bool) -> Axis {
    Axis { from, to, log, begin: LEFT, end: WIDTH - RIGHT }
}

fn open(out: &mut String, title: &str, height: f64, data: &str) -> std::fmt::Result {
    let title = escaped(title);
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\"{data}>")
}

fn grid(out: &mut String, x: Axis, y: Axis, x_unit: &str) -> std::fmt::Result {
    for v in y.ticks(4) {
        let at = y.at(v);
        write!(out, "<path class=\"g\" d=\"M{LEFT} {at:.1}H{}\"/>", WIDTH - RIGHT)?;
        write!(out, "<text x=\"{}\" y=\"{:.1}\" class=\"e\">{}</text>", LEFT - 5.0, at + 3.5, short(v))?;
    }
    let ticks = x.ticks(5);
    for (n, v) in ticks.iter().enumerate() {
        let at = x.at(*v);
        let unit = if n + 1 == ticks.len() { x_unit } else { "" };
        // The last one carries the unit, and stays within the picture.
        let class = if at > WIDTH - 40.0 { "e" } else { "m" };
        let at = if class == "e" { WIDTH - RIGHT } else { at };
        write!(out, "<text x=\"{at:.1}\" y=\"{}\" class=\"{class}\">{}{unit}</text>", HEIGHT - 9.0, short(*v))?;
    }
    Ok(())
}

/// A tick's number, with thousands and millions written short.
fn short(v: f64) -> String {
    match v.abs() {
        a if a >= 1e9 => format!("{}G", number(v / 1e9)),
        a if a >= 1e6 => format!("{}M", number(v / 1e6)),
        a if a >= 1e4 => format!("{}k", number(v / 1e3)),
        _ => number(v),
    }
}

/// Limits that lie near the values are drawn; the others are named.
fn split_limits(limits: &[Limit], from: f64, to: f64) -> (Vec<&Limit>, Vec<&Limit>) {
    let reach = (to - from).max(to.abs() * 0.2).max(1.0) * 2.0;
    limits.iter().partition(|l| l.value >= from - reach && l.value <= to + reach)
}

fn series(out: &mut String, title: &str, unit: &str, lines: &[Line], limits: &[Limit]) -> std::fmt::Result {
    let finite = |p: &&Point| p.is_finite();
    let limits: Vec<Limit> = limits.iter().filter(|l| l.is_finite()).cloned().collect();
    let limits = limits.as_slice();
    let drawn = |l: &Line| Line { name: l.name.clone(), points: l.points.iter().filter(finite).copied().collect() };
    let lines: Vec<Line> = lines.iter().map(drawn).collect();
    let points = || lines.iter().flat_map(|l| &l.points);
    if points().next().is_none() {
        return write!(out, "<p class=\"none\">nothing measured</p>");
    }
    let least = points().map(|p| p.min).fold(f64::INFINITY, f64::min);
    let most = points().map(|p| p.max).fold(f64::NEG_INFINITY, f64::max);
    let (near, far) = split_limits(limits, least, most);
    let least = near.iter().map(|l| l.value).fold(least, f64::min);
    let most = near.iter().map(|l| l.value).fold(most, f64::max);
    let room = ((most - least) * 0.08).max(most.abs() * 1e-2).max(1e-6);
    let end = points().map(|p| p.t).fold(0.0, f64::max);
    let x = x_axis(0.0, if end > 0.0 { end } else { 1.0 }, false);
    let y = y_axis(least - room, most + room, false);
    let data = hover(unit, &lines, end);
    open(out, title, HEIGHT, &data)?;
    grid(out, x, y, " s")?;
    for limit in &near {
        limit_line(out, limit, y)?;
    }
    for (n, line) in lines.iter().enumerate() {
        line_path(out, n % COLOURS, line, x, y)?;
    }
    write!(out, "<path class=\"h\" d=\"\"/></svg>")?;
    let names: Vec<&str> = if lines.len() > 1 { lines.iter().map(|l| l.name.as_str()).collect() } else { Vec::new() };
    legend(out, &names, &far)
}

fn limit_line(out: &mut String, limit: &Limit, y: Axis) -> std::fmt::Result {
    let at = y.at(limit.value);
    // Above the line, below where the picture ends.
    let text_at = if at < TOP + 12.0 { at + 11.0 } else { at - 3.5 };
    write!(out, "<path class=\"l\" d=\"M{LEFT} {at:.1}H{}\"/>", WIDTH - RIGHT)?;
    let name = escaped(&limit.name);
    write!(out, "<text class=\"lt e\" x=\"{}\" y=\"{text_at:.1}\">{name}</text>", WIDTH - RIGHT)
}

/// The band of the extremes, and the mean in it; where nothing was measured, the line is broken.
fn line_path(out: &mut String, colour: usize, line: &Line, x: Axis, y: Axis) -> std::fmt::Result {
    let width = line.points.windows(2).map(|p| p[1].t - p[0].t).filter(|d| *d > 0.0).fold(f64::INFINITY, f64::min);
    let mut rest = line.points.as_slice();
    while !rest.is_empty() {
        let run = 1 + rest.windows(2).take_while(|p| p[1].t - p[0].t < width * 6.5).count();
        let (now, later) = rest.split_at(run.min(rest.len()));
        rest = later;
        let mut band = String::new();
        let mut mean = String::new();
        for (n, p) in now.iter().enumerate() {
            let letter = if n == 0 { 'M' } else { 'L' };
            write!(band, "{letter}{:.1} {:.1}", x.at(p.t), y.at(p.max))?;
            write!(mean, "{letter}{:.1} {:.1}", x.at(p.t), y.at(p.mean))?;
        }
        for p in now.iter().rev() {
            write!(band, "L{:.1} {:.1}", x.at(p.t), y.at(p.min))?;
        }
        write!(out, "<path class=\"b c{colour}\" d=\"{band}Z\"/><path class=\"s c{colour}\" d=\"{mean}\"/>")?;
        if let [only] = now {
            write!(
                out,
                "<circle class=\"d c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"/>",
                x.at(only.t),
                y.at(only.mean)
            )?;
        }
    }
    Ok(())
}

/// What the page's script shows of the point under the pointer.
fn hover(unit: &str, lines: &[Line], end: f64) -> String {
    let mut data = format!(" data-end=\"{end}\" data-unit=\"{}\" data-lines=\"", escaped(unit));
    for (n, line) in lines.iter().enumerate() {
        let name = line.name.replace(['|', ';', ','], " ");
        let _ = write!(data, "{}{}", if n == 0 { "" } else { "|" }, escaped(&name));
        for p in &line.points {
            let _ = write!(data, ";{:.6},{},{},{}", p.t, number(p.min), number(p.mean), number(p.max));
        }
    }
    data + "\""
}

fn histogram(out: &mut String, title: &str, bins: &[Bin], limits: &[Limit]) -> std::fmt::Result {
    let bins: Vec<Bin> = bins.iter().filter(|b| b.is_finite() && b.to > b.from).copied().collect();
    let limits: Vec<Limit> = limits.iter().filter(|l| l.is_finite()).cloned().collect();
    let (bins, limits) = (bins.as_slice(), limits.as_slice());
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else {
        return write!(out, "<p class=\"none\">nothing measured</p>");
    };
    let log = first.from > 0.0 && last.to / first.from > 40.0;
    let (near, far) = split_limits(limits, first.from, last.to);
    let from = near.iter().map(|l| l.value).fold(first.from, f64::min);
    let to = near.iter().map(|l| l.value + 1.0).fold(last.to, f64::max);
    // Bins differ in width: heights are those of the narrowest one's width, so that a flat distribution looks flat.
    let narrowest = bins.iter().map(|b| b.to - b.from).fold(f64::INFINITY, f64::min);
    let height = |b: &Bin| if log { b.count as f64 } else { b.count as f64 * narrowest / (b.to - b.from) };
    let most = bins.iter().map(height).fold(1.0, f64::max);
    let (x, y) = (x_axis(from, to, log), y_axis(0.7, most * 1.3, true));
    open(out, title, HEIGHT, "")?;
    grid(out, x, y, "")?;
    for bin in bins.iter().filter(|b| b.count > 0) {
        let (left, right, top) = (x.at(bin.from), x.at(bin.to), y.at(height(bin)));
        let width = (right - left - 0.6).max(1.2);
        write!(
            out,
            "<rect class=\"r\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{} to {}: {}</title></rect>",
            (HEIGHT - BOTTOM - top).max(1.0),
            number(bin.from),
            number(bin.to),
            bin.count
        )?;
    }
    for limit in &near {
        let at = x.at(limit.value + if log { 0.0 } else { 1.0 });
        write!(out, "<path class=\"l\" d=\"M{at:.1} {TOP}V{}\"/>", HEIGHT - BOTTOM)?;
        let class = if at > WIDTH / 2.0 { "lt e" } else { "lt" };
        let text_at = if at > WIDTH / 2.0 { at - 3.0 } else { at + 3.0 };
        write!(out, "<text class=\"{class}\" x=\"{text_at:.1}\" y=\"{}\">{}</text>", TOP + 9.0, escaped(&limit.name))?;
    }
    out.push_str("</svg>");
    legend(out, &[], &far)
}

fn legend(out: &mut String, names: &[&str], far: &[&Limit]) -> std::fmt::Result {
    if names.is_empty() && far.is_empty() {
        return Ok(());
    }
    out.push_str("<p class=\"legend\">");
    for (n, name) in names.iter().enumerate() {
        write!(out, "<span><i class=\"k{}\"></i>{}</span>", n % COLOURS, escaped(name))?;
    }
    for limit in far {
        write!(out, "<span>{} ({}) is beyond the picture</span>", escaped(&limit.name), number(limit.value))?;
    }
    out.push_str("</p>");
    Ok(())
}

fn map(out: &mut String, title: &str, unit: &str, seconds: f64, rows: &[MapRow]) -> std::fmt::Result {
    const ROW: f64 = 26.0;
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let x = Axis { begin: 70.0, ..x_axis(0.0, if seconds > 0.0 { seconds } else { 1.0 }, false) };
    let cells = |row: &MapRow| row.cells.iter().filter(|c| c.is_finite()).copied().collect::<Vec<_>>();
    let most = rows.iter().flat_map(cells).map(|c| c.amount).fold(0.0, f64::max);
    open(out, title, height, "")?;
    for (n, row) in rows.iter().enumerate() {
        let top = TOP + n as f64 * ROW;
        write!(out, "<text x=\"{}\" y=\"{:.1}\" class=\"e\">{}</text>", x.begin - 6.0, top + 15.0, escaped(&row.name))?;
        write!(
            out,
            "<rect class=\"t\" x=\"{}\" y=\"{top:.1}\" width=\"{}\" height=\"20\" rx=\"2\"/>",
            x.begin,
            x.end - x.begin
        )?;
        for cell in cells(row) {
            let (left, right) = (x.at(cell.from), x.at(cell.to));
            // The least amount is to be seen too.
            let strength = 0.35 + 0.65 * (cell.amount / most.max(1e-9)).sqrt();
            write!(
                out,
                "<rect class=\"x\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"20\" opacity=\"{strength:.2}\"><title>{} s: {} {}</title></rect>",
                (right - left).max(1.5),
                number(cell.from),
                number(cell.amount),
                escaped(unit)
            )?;
        }
    }
    let ticks = x.ticks(5);
    for (n, v) in ticks.iter().enumerate() {
        let unit = if n + 1 == ticks.len() { " s" } else { "" };
        let class = if x.at(*v) > WIDTH - 40.0 { "e" } else { "m" };
        let at = if class == "e" { WIDTH - RIGHT } else { x.at(*v) };
        write!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" class=\"{class}\">{}{unit}</text>", height - 9.0, short(*v))?;
    }
    out.push_str("</svg>");
    let total = |r: &MapRow| cells(r).iter().map(|c| c.amount).sum::<f64>();
    out.push_str("<p class=\"legend\">");
    for row in rows {
        write!(out, "<span>{}: {} {}</span>", escaped(&row.name), number(total(row)), escaped(unit))?;
    }
    out.push_str("</p>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(x_axis(0.0, 0.17, false).ticks(5), [0.0, 0.05, 0.1, 0.15000000000000002]);
        assert_eq!(y_axis(-3.0, 9.0, false).ticks(4), [0.0, 5.0]);
        assert_eq!(y_axis(0.7, 30_000.0, true).ticks(9), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(y_axis(5.0, 5.0, false).ticks(4), [5.0]);
        assert_eq!([nice(0.03), nice(0.0), nice(7.0)], [0.05, 1.0, 10.0]);
    }

    #[test]
    fn nothing_and_odd_numbers_make_no_odd_pictures() {
        let point = |t, v| Point { t, min: v, mean: v, max: v };
        let series = |points| Plot::Series {
            title: "<x>".into(),
            unit: "us".into(),
            lines: vec![Line { name: "a|b".into(), points }],
            limits: vec![Limit { name: "far".into(), value: 1e9 }],
        };
        assert!(figure(&series(vec![])).contains("nothing measured"));
        for points in [vec![point(0.0, 0.0)], vec![point(0.0, 1e300), point(1.0, -1e300)], vec![point(0.0, f64::NAN)]] {
            let svg = figure(&series(points));
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("&lt;x&gt;"), "{svg}");
        }
    }
}
