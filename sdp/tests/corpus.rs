//! Every file of the public corpus lands in the class that its index gives it.

use gdmedia_sdp::{Mode, Severity, parse};
use std::path::{Path, PathBuf};

/// Where the index is judged otherwise, and why.
const ENCRYPTED: &str =
    "a=privacy: the payload is encrypted, so no receiver can place a sample; the class of the like is malformed";
const OTHERWISE: &[(&str, &str, &str)] = &[
    ("matrox_ipmx_1080p_framerate_typo.sdp", "malformed", ENCRYPTED),
    ("matrox_ipmx_l24_51_maxptime.sdp", "malformed", ENCRYPTED),
];

fn corpus() -> Option<PathBuf> {
    let named = std::env::var_os("GDMEDIA_CORPUS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let dir = named.unwrap_or(beside).join("sdp");
    dir.join("INDEX.md").is_file().then_some(dir)
}

/// File, class, remark.
fn index(dir: &Path) -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(dir.join("INDEX.md")).expect("INDEX.md");
    let rows = text.lines().filter(|l| l.starts_with('|')).map(|l| l.split(" | ").map(|c| c.trim_matches(['|', ' '])));
    rows.map(|mut cells| {
        let file = cells.next().unwrap_or("").to_owned();
        let class = cells.next().unwrap_or("").to_owned();
        (file, class, cells.last().unwrap_or("").to_owned())
    })
    .filter(|row| row.0.ends_with(".sdp"))
    .collect()
}

#[test]
fn every_file_lands_in_its_class() {
    let Some(dir) = corpus() else {
        println!("skipped: no corpus");
        return;
    };
    let mut differences = Vec::new();
    let rows = index(&dir);
    assert!(rows.len() >= 100, "INDEX.md has {} rows", rows.len());
    for (file, class, remark) in &rows {
        let d = parse(&std::fs::read(dir.join(file)).expect("corpus file"), Mode::Lenient);
        let worst = d.worst();
        let found = d.diagnostics.iter().filter(|d| d.severity > Severity::Note).count();
        let otherwise = OTHERWISE.iter().find(|o| o.0 == file);
        if let Some((_, judged, why)) = otherwise {
            println!("{file}: {class} in the index, judged {judged}: {why}");
        }
        let judged = otherwise.map_or(class.as_str(), |o| o.1);
        let fits = match judged {
            "conformant" => d.usable && worst <= Some(Severity::Note),
            "deviation" => d.usable && worst <= Some(Severity::Warning) && !d.diagnostics.is_empty(),
            "malformed" => found > 0,
            "incomplete" => found > 0,
            "foreign" => !d.usable && found > 0,
            _ => false,
        };
        if std::env::var_os("SHOW").is_some() || !fits {
            println!("{file}: {class}; usable {}; {remark}", d.usable);
            for d in &d.diagnostics {
                println!("    {}:{} {} [{}] {} | {}", d.line, d.column, d.severity.as_str(), d.code, d.message, d.cure);
            }
        }
        if !fits {
            differences.push(file.clone());
        }
    }
    assert!(differences.is_empty(), "{} of {} differ: {differences:?}", differences.len(), rows.len());
}
