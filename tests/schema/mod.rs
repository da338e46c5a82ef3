//! Checks a JSON value against a JSON Schema that uses a part of the language: what is not known here is a fault of the
//! schema, so that nothing of it goes unchecked.

use serde_json::Value;

/// Every way in which `value` is not what `schema` says, with its place.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    check(schema, schema, value, "$", &mut out);
    out
}

fn check(whole: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let rules = schema.as_object().unwrap_or_else(|| panic!("{at}: a schema is an object, not {schema}"));
    for (rule, wanted) in rules {
        match rule.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let place = wanted.as_str().and_then(|t| t.strip_prefix('#')).expect("a place in this schema");
                let to = whole.pointer(place).unwrap_or_else(|| panic!("{at}: no {place}"));
                check(whole, to, value, at, out);
            }
            "type" => {
                let list = wanted.as_array().cloned().unwrap_or_else(|| vec![wanted.clone()]);
                if !list.iter().any(|t| is(value, t.as_str().expect("a type"))) {
                    out.push(format!("{at}: {value} is not {wanted}"));
                }
            }
            "enum" => {
                if !wanted.as_array().expect("a list").contains(value) {
                    out.push(format!("{at}: {value} is none of {wanted}"));
                }
            }
            "minimum" | "maximum" => {
                let limit = wanted.as_f64().expect("a number");
                let outside = |v: f64| if rule == "minimum" { v < limit } else { v > limit };
                if value.as_f64().is_some_and(outside) {
                    out.push(format!("{at}: {value} is beyond the {rule} {wanted}"));
                }
            }
            "required" => {
                for name in wanted.as_array().expect("a list") {
                    let name = name.as_str().expect("a name");
                    if value.is_object() && value.get(name).is_none() {
                        out.push(format!("{at}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, inside) in value.as_object().into_iter().flatten() {
                    if let Some(schema) = wanted.get(name) {
                        check(whole, schema, inside, &format!("{at}.{name}"), out);
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(wanted, &Value::Bool(false), "{at}: only false is known");
                let known = rules.get("properties").and_then(Value::as_object).expect("properties");
                let strange = |name: &&String| !known.contains_key(*name);
                let names = value.as_object().into_iter().flat_map(|o| o.keys()).filter(strange);
                out.extend(names.map(|name| format!("{at}: {name} is not in the schema")));
            }
            "items" => {
                for (n, inside) in value.as_array().into_iter().flatten().enumerate() {
                    check(whole, wanted, inside, &format!("{at}[{n}]"), out);
                }
            }
            other => panic!("{at}: the rule {other} is not known to this checker"),
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        _ => panic!("no type {kind}"),
    }
}

#[test]
fn what_is_wrong_is_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a", "b"], "additionalProperties": false,
        "properties": { "a": { "$ref": "#/$defs/n" }, "b": { "type": "array", "items": { "enum": ["x", null] } } },
        "$defs": { "n": { "type": ["integer", "null"], "minimum": 1, "maximum": 3 } },
    });
    let count = |value| faults(&schema, &value).len();
    assert_eq!(count(serde_json::json!({ "a": 1, "b": [] })), 0);
    assert_eq!(count(serde_json::json!({ "a": null, "b": ["x", null] })), 0);
    assert_eq!(count(serde_json::json!({ "a": 1.5, "b": [] })), 1);
    assert_eq!(count(serde_json::json!({ "a": 0, "b": ["y"] })), 2);
    assert_eq!(count(serde_json::json!({ "a": 4 })), 2);
    assert_eq!(count(serde_json::json!({ "a": 1, "b": [], "c": 0 })), 1);
    assert_eq!(count(serde_json::json!([])), 1);
}
