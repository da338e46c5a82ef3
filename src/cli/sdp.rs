//! `gdmedia sdp`: what an SDP says, and what is wrong with it.

use super::load;
use super::say::say;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::{
    self, Description, Diagnostic, Essence, Flow, Leg, MediaClock, Mode, ReferenceClock, Scan, Severity, SourceFilter,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// File, `-` for standard input, or http:// or https:// URL of the SDP.
    #[arg(value_name = "FILE|-|URL")]
    from: String,
    /// Print JSON: usable, flows, diagnostics.
    #[arg(long, conflicts_with = "fix")]
    json: bool,
    /// What a standard forbids is an error, even where a receiver can live with it.
    #[arg(long)]
    strict: bool,
    /// Print a corrected SDP; the findings go to standard error.
    #[arg(long)]
    fix: bool,
}

/// Runs the verb. Exit status 0: nothing to complain of, 1: warnings, 2: errors (with `--fix`: that are left).
pub fn run(args: Args) -> Result<ExitCode> {
    let text = match load::sdp_text(&args.from) {
        Ok(text) => text,
        Err(error) => {
            if args.json {
                print(&unreadable(&error))?;
            }
            return Err(error);
        }
    };
    let mode = if args.strict { Mode::Strict } else { Mode::Lenient };
    let description = sdp::parse(&text, mode);
    let name = if args.from == "-" { "standard input" } else { &args.from };
    if args.fix {
        return fix(&description, &text, name, mode);
    }
    if args.json {
        print(&json(&description)?)?;
    } else {
        print(&(flows(&description) + &findings(&description, &text, name) + &verdict(&description)))?;
    }
    Ok(status(&description))
}

fn status(description: &Description) -> ExitCode {
    ExitCode::from(match description.worst() {
        None | Some(Severity::Note) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Error) => 2,
    })
}

fn fix(description: &Description, text: &[u8], name: &str, mode: Mode) -> Result<ExitCode> {
    let _ = std::io::stderr().lock().write_all(findings(description, text, name).as_bytes());
    let Some(corrected) = description.corrected() else {
        say!("{name}: no flow can be received, so there is nothing to write; see the errors above");
        return Ok(ExitCode::from(2));
    };
    print(&corrected)?;
    let left = sdp::parse(corrected.as_bytes(), mode);
    let open: Vec<&Diagnostic> = left.diagnostics.iter().filter(|d| d.severity > Severity::Note).collect();
    if !open.is_empty() {
        say!("only the sender knows, so this is left:");
        for d in open {
            say!("  {}: {} ({})", d.severity.as_str(), d.message, d.cure);
        }
    }
    Ok(status(&left))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as with `| head`.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Error::new(Kind::Output, "cannot write to standard output").because(e)),
        Ok(()) => Ok(()),
    }
}

fn json(description: &Description) -> Result<String> {
    let text = serde_json::to_string_pretty(description)
        .map_err(|e| Error::new(Kind::Internal, "cannot write the description as JSON").because(e))?;
    Ok(text + "\n")
}

/// The same shape for text that could not be had at all.
fn unreadable(error: &Error) -> String {
    let message = error.to_string();
    let message = message.split("\n  cure:").next().unwrap_or("");
    let value = serde_json::json!({
        "usable": false,
        "flows": [],
        "diagnostics": [{
            "severity": "error", "code": "cannot-read", "line": 0, "column": 0, "parameter": "",
            "message": message, "cure": error.cure_text(), "clause": "",
        }],
    });
    format!("{value:#}\n")
}

/// The flows as an engineer reads them.
fn flows(description: &Description) -> String {
    let mut out = String::new();
    for (number, flow) in description.flows.iter().enumerate() {
        // Writing into a string does not fail.
        let _ = flow_text(&mut out, number, flow, description.refusal(flow));
        out.push('\n');
    }
    out
}

fn flow_text(out: &mut String, number: usize, flow: &Flow, refusal: Option<&str>) -> std::fmt::Result {
    let name = if flow.name.is_empty() { String::new() } else { format!(" \"{}\"", printable(&flow.name)) };
    writeln!(out, "flow {number}{name}: {}", printable(flow.essence.kind()))?;
    if let Some(format) = format_text(&flow.essence, flow.clock_rate) {
        writeln!(out, "  format    {}", printable(&format))?;
    }
    if let Some(e) = flow.estimate().filter(|_| flow.usable) {
        let about = match e.packets_per_frame {
            Some(n) => format!(", {n} packets a frame, {:.0} a second", e.packets_per_second),
            None if matches!(flow.essence, Essence::Audio(_) | Essence::Aes3(_)) => {
                format!(", {:.0} packets a second", e.packets_per_second)
            }
            None => String::new(),
        };
        writeln!(out, "  expected  {}{about}", bit_rate(e.bits_per_second))?;
    }
    writeln!(out, "  RTP       payload type {}, clock {} Hz", flow.payload_type, flow.clock_rate)?;
    for (i, leg) in flow.legs.iter().enumerate() {
        let label = if flow.legs.len() > 1 { format!("leg {i}") } else { "to".to_owned() };
        writeln!(out, "  {label:<9} {}", leg_text(leg))?;
    }
    for clock in &flow.reference_clocks {
        writeln!(out, "  reference {}", printable(&reference_text(clock)))?;
    }
    match &flow.media_clock {
        MediaClock::Unknown => {}
        MediaClock::Direct { offset } => writeln!(out, "  media     direct, offset {offset}")?,
        MediaClock::Sender => writeln!(out, "  media     the sender's own clock, free running")?,
        MediaClock::Other { text } => writeln!(out, "  media     {}", printable(text))?,
    }
    if let Some(refusal) = refusal {
        writeln!(out, "  cannot be received: {}", printable(refusal))?;
    } else if !received(flow) {
        writeln!(out, "  described well; not received by this version")?;
    }
    Ok(())
}

fn format_text(essence: &Essence, clock_rate: u32) -> Option<String> {
    let fps = |rate: Option<sdp::Ratio>, scan: Scan| match rate {
        None => "unknown rate".to_owned(),
        Some(rate) => {
            let each = match scan {
                Scan::Progressive => "frames a second",
                Scan::Interlaced => "frames (two fields) a second",
                Scan::Psf => "frames (two segments) a second",
            };
            let exact = if rate.den == 1 { String::new() } else { format!(" ({rate})") };
            format!("{}{exact} {each}", decimals(rate.as_f64()))
        }
    };
    Some(match essence {
        Essence::Video(v) => {
            let letter = match v.scan {
                Scan::Progressive => "progressive",
                Scan::Interlaced => "interlaced",
                Scan::Psf => "PsF",
            };
            let sender = v.sender_type.map_or("unknown".to_owned(), |t| t.to_string());
            let udp = if v.max_udp > 1460 { format!(", UDP up to {} octets", v.max_udp) } else { String::new() };
            format!(
                "{}x{} {letter}, {}\n            {} {} bit, {}, {}, {}\n            packing {}, sender type {sender}{udp}",
                v.width,
                v.height,
                fps(v.rate, v.scan),
                v.sampling,
                v.depth,
                v.colorimetry,
                v.tcs,
                v.range,
                v.packing,
            )
        }
        Essence::CompressedVideo(v) => {
            let size = match (v.width, v.height) {
                (Some(w), Some(h)) => format!("{w}x{h} {}, ", v.scan),
                _ => String::new(),
            };
            format!("{}, {size}{}", v.encoding, fps(v.rate, v.scan))
        }
        Essence::Audio(a) | Essence::Aes3(a) => {
            let time = match (a.packet_time_us, a.samples_per_packet) {
                (Some(us), Some(n)) => format!("{} ms ({n} samples) a packet", decimals(f64::from(us) / 1000.0)),
                _ => "unknown packet time".to_owned(),
            };
            let order = a.channel_order.as_ref().map_or(String::new(), |o| format!(", {o}"));
            format!("{} {clock_rate} Hz, {} channels, {time}{order}", a.encoding, a.channels)
        }
        Essence::Ancillary(a) => {
            let list: Vec<String> = a.did_sdid.iter().map(|(d, s)| format!("{d:02X}/{s:02X}")).collect();
            let kinds = if list.is_empty() { "any DID/SDID".to_owned() } else { list.join(", ") };
            format!("{kinds}, {}", fps(a.rate, Scan::Progressive))
        }
        Essence::FastMetadata(m) => {
            let list: Vec<String> = m.data_item_types.iter().map(|t| format!("{t:X}")).collect();
            format!("data item types {}", if list.is_empty() { "any".to_owned() } else { list.join(", ") })
        }
        Essence::TimedText(t) => format!("TTML, {}", t.codecs.as_deref().unwrap_or("unknown profile")),
        Essence::Sdi2022_6 | Essence::Foreign { .. } => return None,
    })
}

fn leg_text(leg: &Leg) -> String {
    let list = |list: &[std::net::IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let from = match &leg.sources {
        SourceFilter::Any => "any source".to_owned(),
        SourceFilter::Include(sources) => list(sources),
        SourceFilter::Exclude(sources) => format!("any source but {}", list(sources)),
    };
    let socket = std::net::SocketAddr::new(leg.destination, leg.port);
    let kind = if leg.destination.is_multicast() { "multicast" } else { "unicast" };
    let ttl = leg.ttl.map_or(String::new(), |ttl| format!(", TTL {ttl}"));
    let mid = leg.mid.as_ref().map_or(String::new(), |mid| format!(", mid {}", printable(mid)));
    format!("{socket} {kind} from {from}{ttl}{mid}")
}

fn reference_text(clock: &ReferenceClock) -> String {
    match clock {
        ReferenceClock::Ptp { version, grandmaster: None, .. } => format!("PTP {version}, traceable"),
        ReferenceClock::Ptp { version, grandmaster: Some(id), domain } => {
            let domain = domain.map_or("unknown".to_owned(), |d| d.to_string());
            format!("PTP {version}, grandmaster {id}, domain {domain}")
        }
        ReferenceClock::LocalMac { mac } => format!("the sender's own clock (localmac {mac})"),
        ReferenceClock::Other { text } => text.clone(),
    }
}

fn bit_rate(bits: f64) -> String {
    match bits {
        b if b >= 1e9 => format!("{:.2} Gb/s", b / 1e9),
        b if b >= 1e6 => format!("{:.1} Mb/s", b / 1e6),
        b => format!("{:.0} kb/s", b / 1e3),
    }
}

/// At most three decimals, no zeros at the end.
fn decimals(value: f64) -> String {
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text of a stranger, without what could move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The findings as a compiler shows them: what, the line with a caret, the cure and the clause.
fn findings(description: &Description, text: &[u8], name: &str) -> String {
    let lines = sdp::physical_lines(text);
    let mut out = String::new();
    for d in &description.diagnostics {
        let _ = finding(&mut out, d, &lines, name);
        out.push('\n');
    }
    out
}

fn finding(out: &mut String, d: &Diagnostic, lines: &[String], name: &str) -> std::fmt::Result {
    writeln!(out, "{}: {} [{}]", d.severity.as_str(), printable(&d.message), d.code)?;
    let place = match (d.line, d.column) {
        (0, _) => name.to_owned(),
        (line, 0) => format!("{name}:{line}"),
        (line, column) => format!("{name}:{line}:{column}"),
    };
    writeln!(out, "  --> {place}")?;
    if let Some(line) = (d.line as usize).checked_sub(1).and_then(|n| lines.get(n)) {
        let (quoted, caret) = window(line, d.column as usize);
        let number = d.line.to_string();
        writeln!(out, "  {number} | {quoted}")?;
        if let Some(caret) = caret {
            writeln!(out, "  {} | {}^", " ".repeat(number.len()), " ".repeat(caret))?;
        }
    }
    writeln!(out, "  cure: {}", printable(&d.cure))?;
    if !d.clause.is_empty() {
        writeln!(out, "  rule: {}", d.clause)?;
    }
    Ok(())
}

/// The part of a line around a column (in octets, from 1), and where the caret belongs in it.
fn window(line: &str, column: usize) -> (String, Option<usize>) {
    const WIDTH: usize = 100;
    const BEFORE: usize = 40;
    let clean: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let position = line.char_indices().take_while(|(at, c)| at + c.len_utf8() < column).count();
    let start = if clean.len() <= WIDTH { 0 } else { position.saturating_sub(BEFORE).min(clean.len() - WIDTH) };
    let end = (start + WIDTH).min(clean.len());
    let mut text: String = clean.get(start..end).unwrap_or(&[]).iter().collect();
    let mut caret = position - start;
    if start > 0 {
        text.insert(0, '…');
        caret += 1;
    }
    if end < clean.len() {
        text.push('…');
    }
    (text, (column > 0).then_some(caret))
}

/// Whether `gdmedia play` takes this essence; other programs may take the others.
fn received(flow: &Flow) -> bool {
    matches!(flow.essence, Essence::Video(_))
}

fn verdict(description: &Description) -> String {
    let count = |severity| description.diagnostics.iter().filter(|d| d.severity == severity).count();
    let total = description.flows.len();
    let here = description.usable_flows().filter(|f| received(f)).count();
    let other = description.usable_flows().count() - here;
    let word = if description.usable { "usable" } else { "not usable" };
    let flows = match (here, other) {
        (_, 0) => format!("{word}: {here} of {total} flows can be received"),
        (0, _) if description.usable => {
            format!("described well; not received by this version: {other} of {total} flows")
        }
        _ => format!(
            "{word}: {here} of {total} flows can be received; {other} described well; not received by this version"
        ),
    };
    format!(
        "{flows}; {} errors, {} warnings, {} notes\n",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note),
    )
}
