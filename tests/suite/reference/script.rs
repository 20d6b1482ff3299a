//! Reads the recorded calls (`calls.jsonl.gz`) and makes them to a server. Each line is a step:
//!
//! - `{"seeds": [..]}`, the first line: the records that each seed creates;
//! - `{"seed": N}`: deletes all broadcasts, then creates those records and N more;
//! - `{"pause": ms}`;
//! - `{"session": "keep" | "drop" | "restore"}`: saves the cookie of the management session as `{admin}`, forgets it,
//!   or uses the saved one again;
//! - `{"quiet": method, "path", "body"}`: a call whose answer is not compared;
//! - `{"call": name, "method", "path", "headers", "cookie", ...}`: a call. Its body is in `body`, `hex` or `settings`
//!   (members that replace those of the settings that were read). Ant Media Server's answer is in `status`, `fields` and
//!   `answer`. `save` saves `member` of the answer (or all of it) as a variable, which `{name}` in paths and bodies
//!   stands for.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::vec::IntoIter;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::{ms, run, secs};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";
/// Header fields of an answer that are compared.
const FIELDS: [&str; 4] = ["content-type", "allow", "location", "content-encoding"];
/// Pause between creating the records of a seed, so that their creation times differ.
const SEED_PAUSE_MS: u64 = 3;

/// A line of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    seeds: Vec<Value>,
    seed: Option<usize>,
    pause: Option<u64>,
    session: Option<String>,
    quiet: Option<String>,
    call: Option<String>,
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Option<String>,
    hex: Option<String>,
    settings: Option<Map<String, Value>>,
    cookie: bool,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Part of a step that concerns its answer: the value to save, and Ant Media Server's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Outcome {
    save: Option<String>,
    member: String,
    status: u16,
    fields: BTreeMap<String, String>,
    answer: String,
}

/// A call that was made, with Ant Media Server's answer.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) answer: Answer,
}

/// An answer: the status, the compared header fields by name in lower case, and the body.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: BTreeMap<String, String>,
    pub(super) body: String,
}

/// The remaining steps, and the state that calls share.
#[derive(Debug)]
pub(super) struct Script {
    server: SocketAddr,
    steps: IntoIter<Step>,
    seeds: Vec<Value>,
    variables: HashMap<String, String>,
    cookie: Option<String>,
}

impl Script {
    pub(super) fn load(server: SocketAddr) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/reference/calls.jsonl.gz");
        let (status, text, error) = run(Command::new("gzip").arg("-dc").arg(file));
        assert!(status.success(), "gzip: {error}");
        let steps: Vec<Step> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let mut steps = steps.into_iter();
        let seeds = steps.next().unwrap().seeds;
        Self { server, steps, seeds, variables: HashMap::new(), cookie: None }
    }

    /// Runs steps up to and including the next call. Returns `None` if there are no more calls.
    pub(super) fn next_call(&mut self) -> Option<(Call, Answer)> {
        loop {
            let step = self.steps.next()?;
            if let Some(more) = step.seed {
                self.seed(more);
            } else if let Some(pause) = step.pause {
                std::thread::sleep(ms(pause));
            } else if let Some(order) = &step.session {
                self.session(order);
            } else if step.quiet.is_some() {
                self.quiet(&step);
            } else {
                return Some(self.call(step));
            }
        }
    }

    fn session(&mut self, order: &str) {
        match order {
            "keep" => {
                self.variables.insert("admin".to_owned(), self.cookie.clone().unwrap_or_default());
            }
            "drop" => self.cookie = None,
            "restore" => self.cookie = self.variables.get("admin").cloned(),
            other => panic!("{other}"),
        }
    }

    fn seed(&self, more: usize) {
        self.wipe();
        for record in self.seeds.clone() {
            self.create(&record);
        }
        for number in 0..more {
            self.create(&serde_json::json!({
                "streamId": format!("x{number:03}"),
                "name": format!("x{:03}", 999 - number),
            }));
        }
    }

    fn create(&self, record: &Value) {
        let answer = self.ask(
            "POST",
            &format!("{BROADCASTS}/create"),
            &json_type(),
            Some(record.to_string().as_bytes()),
        );
        assert_eq!(answer.status, 200, "{record}: {answer:?}");
        std::thread::sleep(ms(SEED_PAUSE_MS));
    }

    fn wipe(&self) {
        loop {
            let answer = self.ask("GET", &format!("{BROADCASTS}/list/0/50"), &[], None);
            let records: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
            if records.is_empty() {
                return;
            }
            for record in records {
                let path = format!("{BROADCASTS}/{}", record["streamId"].as_str().unwrap());
                assert_eq!(self.ask("DELETE", &path, &[], None).status, 200, "{path}");
            }
        }
    }

    fn quiet(&self, step: &Step) {
        let path = self.filled(&step.path);
        // The path still contains a variable if an earlier answer did not contain its value. Then the call is skipped.
        if !path.contains('{') {
            let fields = if step.body.is_some() { json_type() } else { Vec::new() };
            self.ask(step.quiet.as_deref().unwrap(), &path, &fields, step.body.as_deref().map(str::as_bytes));
        }
    }

    fn call(&mut self, step: Step) -> (Call, Answer) {
        let path = self.filled(&step.path);
        let body = self.body(&step);
        let host = self.server.to_string();
        let field =
            |(name, value): (&String, &String)| (name.clone(), self.filled(&value.replace("{host}", &host)));
        let mut fields: Vec<(String, String)> = step.headers.iter().map(field).collect();
        if let Some(cookie) = self.cookie.as_ref().filter(|_| step.cookie) {
            fields.push(("Cookie".to_owned(), cookie.clone()));
        }
        let mut answer = self.ask(&step.method, &path, &fields, body.as_deref());
        // The server limits logins per second, which a fast machine exceeds. So the call is repeated.
        while answer.status == 429 {
            std::thread::sleep(secs(1));
            answer = self.ask(&step.method, &path, &fields, body.as_deref());
        }
        if let Some(cookie) = answer.fields.remove("set-cookie").filter(|_| path.contains("authenticate")) {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        if let Some(name) = step.outcome.save {
            let value = saved(&answer.body, &step.outcome.member);
            match value {
                Some(value) => self.variables.insert(name, value),
                None => self.variables.remove(&name),
            };
        }
        let theirs =
            Answer { status: step.outcome.status, fields: step.outcome.fields, body: step.outcome.answer };
        (Call { name: step.call.unwrap(), method: step.method, path, answer: theirs }, answer)
    }

    fn body(&self, step: &Step) -> Option<Vec<u8>> {
        if let Some(hex) = &step.hex {
            return Some(data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap());
        }
        if let Some(changes) = &step.settings {
            let settings = self.variables.get("settings").map_or("{}", String::as_str);
            let mut settings: Map<String, Value> = serde_json::from_str(settings).unwrap();
            settings.extend(changes.clone());
            return Some(Value::Object(settings).to_string().into_bytes());
        }
        step.body.as_ref().map(|body| self.filled(body).into_bytes())
    }

    fn filled(&self, text: &str) -> String {
        let fill =
            |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
        self.variables.iter().fold(text.to_owned(), fill)
    }

    /// Makes a call over a new connection.
    fn ask(&self, method: &str, path: &str, fields: &[(String, String)], body: Option<&[u8]>) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.server);
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if body.is_some() || ["POST", "PUT", "PATCH"].contains(&method) {
            head.push_str(&format!("Content-Length: {}\r\n", body.map_or(0, <[u8]>::len)));
        }
        let request = [head.as_bytes(), b"\r\n", body.unwrap_or_default()].concat();
        let mut stream = TcpStream::connect(self.server).unwrap();
        stream.set_read_timeout(Some(secs(60))).unwrap();
        // The server may answer and close before everything is written.
        let _ = stream.write_all(&request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        parse(&answer)
    }
}

fn json_type() -> Vec<(String, String)> {
    vec![("Content-Type".to_owned(), "application/json".to_owned())]
}

/// Returns a member of an answer as text, by its name or a JSON Pointer (RFC 6901). Returns the whole answer if
/// `member` is empty.
fn saved(body: &str, member: &str) -> Option<String> {
    let value: Value = serde_json::from_str(body).ok()?;
    if member.is_empty() {
        return Some(value.to_string());
    }
    let found = if member.starts_with('/') { value.pointer(member) } else { value.get(member) };
    found?.as_str().map(str::to_owned)
}

fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Answer::default() };
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = name.to_ascii_lowercase();
        let is_compared =
            FIELDS.contains(&name.as_str()) || name.starts_with("access-control-") || name == "set-cookie";
        is_compared.then(|| (name, value.trim().to_owned()))
    };
    Answer { status, fields: head.lines().skip(1).filter_map(field).collect(), body: body.to_owned() }
}
