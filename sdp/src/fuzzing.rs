//! Bodies of the fuzz targets, so that every build compiles them.

use crate::{Description, Mode, Severity, parse, physical_lines, write};
use std::collections::BTreeSet;

/// Reads any octets in both modes, writes what is usable, reads that again, and checks what must hold.
pub fn sdp(input: &[u8]) {
    let lenient = parse(input, Mode::Lenient);
    let strict = parse(input, Mode::Strict);
    let lines = physical_lines(input).len() as u32;
    for d in lenient.diagnostics.iter().chain(&strict.diagnostics) {
        assert!(d.line <= lines, "line {} of {lines}: {d:?}", d.line);
        assert!(!d.message.is_empty() && !d.cure.is_empty() && !d.code.is_empty());
        assert!(d.line > 0 || d.column == 0);
    }
    assert_eq!(lenient.flows, strict.flows, "the modes judge alike and place alike");
    // Not how often: repetitions are folded by severity, which differs.
    let codes = |d: &Description| d.diagnostics.iter().map(|d| d.code).collect::<BTreeSet<_>>();
    assert_eq!(codes(&lenient), codes(&strict), "the modes find alike");
    assert!(!strict.usable || lenient.usable);
    assert!(!strict.usable || strict.worst() < Some(Severity::Error));
    assert_eq!(lenient.usable, lenient.flows.iter().any(|f| f.usable));
    if !lenient.usable {
        assert_eq!(lenient.worst(), Some(Severity::Error), "what is not usable has an error that says why");
    }
    for flow in &lenient.flows {
        assert!(!flow.legs.is_empty());
        assert_eq!(flow.usable, lenient.refusal(flow).is_none());
        assert!(!flow.usable || flow.legs.iter().all(|l| l.port > 0));
        let _ = flow.estimate();
    }

    let usable: Vec<_> = lenient.usable_flows().cloned().collect();
    let again = parse(write(&usable).as_bytes(), Mode::Lenient);
    assert_eq!(again.usable_flows().count(), usable.len(), "what was written is read again");
    if let Some(corrected) = lenient.corrected() {
        let again = parse(corrected.as_bytes(), Mode::Lenient);
        assert!(again.usable);
        assert_eq!(again.usable_flows().count(), usable.len());
    }
}
