//! schemathesis makes valid and invalid requests from our own OpenAPI document. No answer may have a status 5xx,
//! or a body that does not match the document.
//!
//! `SUITE_SCHEMA_CASES` sets the approximate number of requests.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Bystander, Server, python, run};

/// Default number of requests.
const CASES: usize = 2000;

/// Restricts parameters to a few values, of which about half exist, so that requests reach the operations.
fn narrow(document: &mut Value) {
    for (_, operations) in document["paths"].as_object_mut().unwrap() {
        for (_, operation) in operations.as_object_mut().unwrap() {
            for parameter in operation["parameters"].as_array_mut().unwrap() {
                let schema = match (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap()) {
                    ("app", "path") => json!({ "enum": ["live", "LiveApp"] }),
                    ("id", _) => json!({ "enum": ["a", "b", "c", "none", ".."] }),
                    _ => continue,
                };
                parameter["schema"] = schema;
            }
        }
    }
}

#[test]
fn r_11_requests_made_from_the_document_break_nothing() {
    let mut server = Server::start(&["server.cpu_limit=100"]);
    let bystander = Bystander::start(&server);
    let api = server.api();
    for (id, kind) in [("a", "liveStream"), ("b", "playlist"), ("c", "streamSource")] {
        let body = json!({ "streamId": id, "type": kind, "streamUrl": "rtmp://127.0.0.1:1/live/x" });
        assert_eq!(api.post("/live/rest/v2/broadcasts/create", &body.to_string()).status, 200);
    }
    let mut document: Value = serde_json::from_str(&api.get("/openapi.json").body).unwrap();
    narrow(&mut document);
    let operations: usize =
        document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
    let file = server.home().join("openapi.json");
    fs::write(&file, document.to_string()).unwrap();

    let cases = std::env::var("SUITE_SCHEMA_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let schemathesis = python().with_file_name("schemathesis");
    let (status, out, _) = run(Command::new(schemathesis)
        .current_dir(server.home())
        .args(["run", "--url", &format!("http://{}", server.http), "--phases", "fuzzing", "--no-color"])
        .args(["--checks", "not_a_server_error,content_type_conformance,response_schema_conformance"])
        .args([
            "--max-examples",
            &cases.div_ceil(operations).to_string(),
            "--seed",
            "11",
            "--warnings",
            "off",
        ])
        .args(["--generation-database", "none", "--continue-on-failure"])
        .arg(&file));
    assert!(status.success(), "{out}");
    assert!(server.is_alive());
    bystander.finish(&mut server);
}
