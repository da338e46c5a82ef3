//! Bodies of the fuzz targets, compiled by every build so that an API change cannot leave them behind.
//! One function a target; each takes foreign octets and must not panic.

/// Captures of any kind: container, link layers, RTP, and what the survey makes of it.
pub fn capture(octets: &[u8]) {
    use crate::rx::survey::survey_of;
    use crate::wire::capture::Capture;
    let Ok(mut capture) = Capture::new(octets, "fuzz") else { return };
    if let Ok(survey) = survey_of(&mut capture, None) {
        for flow in &survey.flows {
            assert!(!flow.to_string().is_empty() && !flow.why.is_empty());
        }
    }
    let counters = capture.counters();
    assert!(counters.snapped <= counters.records);
    assert!(matches!(capture.next_record(), Ok(None)));
}
