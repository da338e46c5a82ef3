use super::*;

fn sample() -> Report {
    let mut report = Report::new("analyze", "a.pcap <&> \"x\"");
    report.summary = "1 flow".into();
    let check = |name: &str, severity, message: &str| Check {
        group: "flow 0".into(),
        name: name.into(),
        severity,
        message: message.into(),
        clause: "ST 2110-21:2022, 7.1".into(),
    };
    report.check(check("loss", Severity::Failure, "5 packets < 6 & \u{1} lost"));
    report.check(check("clock", Severity::Pass, "fine"));
    report.check(check("VRX", Severity::NotMeasurable, "software stamps"));
    report.metrics.insert("flow0.lost".into(), 5.0);
    report.sections.push(Section {
        title: "flow 0".into(),
        note: "a note".into(),
        facts: vec![Fact { name: "packets".into(), value: "1".into(), hint: "of 6".into() }],
        tables: vec![Table {
            title: "measures".into(),
            columns: ["measure", "least", "most"].map(String::from).to_vec(),
            rows: vec![["FPT us", "-1", "10"].map(String::from).to_vec()],
        }],
        plots: vec![
            Plot::Series {
                title: "VRX".into(),
                unit: "packets".into(),
                lines: vec![Line {
                    name: "gapped".into(),
                    points: vec![
                        Point { t: 0.0, min: 1.0, mean: 2.0, max: 3.0 },
                        Point { t: 1.0, min: 1.0, mean: 2.0, max: 4.0 },
                    ],
                }],
                limits: vec![Limit { name: "VRXFULL 8".into(), value: 8.0 }],
            },
            Plot::Histogram {
                title: "spacing".into(),
                unit: "us".into(),
                bins: vec![Bin { from: 1.0, to: 2.0, count: 3 }, Bin { from: 100.0, to: 120.0, count: 70_000 }],
                limits: vec![],
            },
            Plot::Map {
                title: "losses".into(),
                unit: "packets".into(),
                seconds: 2.0,
                rows: vec![MapRow { name: "leg 0".into(), cells: vec![MapCell { from: 0.5, to: 0.6, amount: 5.0 }] }],
            },
        ],
    });
    report.events.push(Event { at: 0.5, severity: Severity::Failure, group: "flow 0".into(), text: "5 lost".into() });
    report.decisions.push("no SDP".into());
    report.environment.push(("version".into(), "0".into()));
    report
}

#[test]
fn json_comes_back() {
    let report = sample();
    let text = report.json().unwrap();
    assert_eq!(Report::from_json(&text).unwrap(), report);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["schema"], &value["verdict"]), (&1.into(), &"failure".into()));
    assert_eq!(value["sections"][0]["plots"][1]["plot"], "histogram");
    let other = text.replacen("\"schema\": 1", "\"schema\": 99", 1);
    assert!(Report::from_json(&other).unwrap_err().to_string().contains("schema 99"));
    assert_eq!(Report::from_json("{}").unwrap_err().kind(), Kind::Data);
}

/// JSON has neither infinity nor NaN, and serde writes null for them, which nobody reads again.
#[test]
fn numbers_that_json_does_not_have_are_left_out() {
    let mut report = sample();
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    report.metrics.insert("odd".into(), nan);
    report.events.push(Event { at: inf, severity: Severity::Pass, group: "x".into(), text: "y".into() });
    report.sections[0].plots = vec![
        Plot::Series {
            title: "s".into(),
            unit: "us".into(),
            lines: vec![Line { name: "l".into(), points: vec![Point { t: 1.0, min: 0.0, mean: nan, max: 0.0 }] }],
            limits: vec![Limit { name: "far".into(), value: -inf }],
        },
        Plot::Histogram {
            title: "h".into(),
            unit: "us".into(),
            bins: vec![Bin { from: 0.0, to: inf, count: 1 }, Bin { from: 0.0, to: 1.0, count: 2 }],
            limits: Vec::new(),
        },
        Plot::Map {
            title: "m".into(),
            unit: "packets".into(),
            seconds: nan,
            rows: vec![MapRow { name: "r".into(), cells: vec![MapCell { from: 0.0, to: 1.0, amount: nan }] }],
        },
    ];
    let text = report.json().unwrap();
    assert!(!text.contains("null"), "{text}");
    let read = Report::from_json(&text).unwrap();
    assert_eq!((read.metrics.len(), read.events.len()), (1, 1));
    for form in [Form::Junit, Form::Html, Form::Text] {
        let text = render(&report, form).unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf,"), "{form:?}: {text}");
    }
}

#[test]
fn junit_by_hand() {
    let xml = junit::render(&sample());
    let wanted = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="a.pcap &lt;&amp;&gt; &quot;x&quot;" tests="3" failures="1" errors="0" skipped="1">
  <testsuite name="flow 0" tests="3" failures="1" errors="0" skipped="1" time="0">
    <testcase classname="flow 0" name="loss" time="0"><failure message="5 packets &lt; 6 &amp; � lost" type="failure">5 packets &lt; 6 &amp; � lost [ST 2110-21:2022, 7.1]</failure></testcase>
    <testcase classname="flow 0" name="clock" time="0"><system-out>fine [ST 2110-21:2022, 7.1]</system-out></testcase>
    <testcase classname="flow 0" name="VRX" time="0"><skipped message="software stamps"/></testcase>
  </testsuite>
</testsuites>
"#;
    assert_eq!(xml, wanted);
}

#[test]
fn html_asks_nothing_of_a_server_and_holds_everything() {
    let html = html::render(&sample());
    for request in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(request), "{request}");
    }
    for part in ["<svg", "a.pcap &lt;&amp;&gt;", "VRXFULL 8", "5 lost", "no SDP", "prefers-color-scheme: dark"] {
        assert!(html.contains(part), "{part}");
    }
    for tag in ["section", "table", "figure", "svg", "ul", "dl", "details"] {
        let count = |what: String| html.matches(&what).count();
        let opened = count(format!("<{tag}>")) + count(format!("<{tag} "));
        assert_eq!(opened, count(format!("</{tag}>")), "{tag}");
    }
}

#[test]
fn text_says_what_is_wrong() {
    let text = text::render(&sample(), text::Style::default());
    assert!(text.contains("  failure: loss: 5 packets < 6 &   lost [ST 2110-21:2022, 7.1]"), "{text}");
    assert!(text.contains("    measure  least  most\n    FPT us      -1    10\n"), "{text}");
    assert!(!text.contains("fine") && text.ends_with("1 failure, 1 not measurable, 1 passed\n"), "{text}");
}

#[test]
fn forms_by_suffix_and_files_in_one_piece() {
    let folder = tempfile::tempdir().unwrap();
    for (name, begin) in [("a.json", "{"), ("a.xml", "<?xml"), ("a.HTML", "<!DOCTYPE"), ("a.txt", "a.pcap")] {
        let path = folder.path().join(name);
        write(&sample(), &path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(begin), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    assert_eq!(write(&sample(), Path::new("a.doc")).unwrap_err().kind(), Kind::Usage);
    let error = write(&sample(), &folder.path().join("none/a.json")).unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
}

#[test]
fn numbers_for_people() {
    let cases = [
        (0.0, "0"),
        (-0.0, "0"),
        (1234.5, "1234"),
        (123.45, "123.5"),
        (12.345, "12.35"),
        (1.5, "1.5"),
        (-0.25, "-0.25"),
        (0.0005, "0.0005"),
        (0.0123456, "0.0123"),
        (0.00123456, "0.00123"),
        (1e-7, "1.0e-7"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value), text);
    }
}
