//! The schemas of AMWA, which lie in the package of the crate `nmos`.

use jsonschema::{Draft, Validator};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

/// The folder of the schemas, asked of cargo.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let words = ["metadata", "--format-version=1", "--locked", "--manifest-path", manifest];
    let out = Command::new(cargo).args(words).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "nmos").unwrap();
    let path = PathBuf::from(package["manifest_path"].as_str().unwrap());
    path.parent().unwrap().join("schemas")
});

/// Finds what a schema names: files of the same folder.
struct Files;

impl jsonschema::Retrieve for Files {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let path = uri.as_str().strip_prefix("json-schema://amwa/").ok_or("a schema of another place")?;
        Ok(serde_json::from_slice(&std::fs::read(FOLDER.join(path))?)?)
    }
}

/// Checks `document` against the schema at `path`, such as `is-04/v1.3/node.json`.
pub fn check(path: &str, document: &Value) {
    let errors = errors(path, document);
    assert!(errors.is_empty(), "{path}: {errors:#?}\n{document:#}");
}

/// What is wrong with it.
pub fn errors(path: &str, document: &Value) -> Vec<String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let validator = KNOWN.lock().unwrap().get(path).cloned();
    let validator = validator.unwrap_or_else(|| {
        let schema: Value = serde_json::from_slice(&std::fs::read(FOLDER.join(path)).unwrap()).unwrap();
        let validator = jsonschema::options()
            .with_draft(Draft::Draft4)
            .with_base_uri(format!("json-schema://amwa/{path}"))
            .with_retriever(Files)
            .should_validate_formats(true)
            .build(&schema)
            .unwrap();
        let validator = Arc::new(validator);
        KNOWN.lock().unwrap().insert(path.to_owned(), validator.clone());
        validator
    });
    validator.iter_errors(document).map(|e| format!("{e} at {}", e.instance_path())).collect()
}
