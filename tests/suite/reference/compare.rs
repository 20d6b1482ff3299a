//! Finds the differences between two answers.
//!
//! Compares the status, the media type, the JSON members with their order, types and values, and the header fields that
//! clients read. For values that differ between runs (ids made by a server, times, ports, addresses, secrets,
//! measurements of the machine), compares only the type. Ignores the text of errors that are not JSON, and members that
//! only this server has. Compares named objects in lists with the objects of the same name.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::script::{Answer, Call};

/// Members whose values differ between runs.
const VOLATILE: [&str; 17] = [
    "hostAddress",
    "defaultHttpPort",
    "rtmpPort",
    "srtPort",
    "storage",
    "clusterCommunicationKey",
    "subscriberAuthenticationKey",
    "blockedUntilUnitTimeStampMs",
    "date",
    "originAdress",
    "creationDate",
    "updateTime",
    "startTime",
    "vodId",
    "buildNumber",
    "versionName",
    "versionType",
];
/// Members that only this server has (docs/deviations.md).
const OURS: [&str; 3] = ["originAddress", "subTrackStreamIds", "rtmpUrl"];
/// Members that are the name of an object in a list.
const NAMES: [&str; 3] = ["endpointUrl", "email", "subscriberId"];
/// Members that contain ids.
const IDS: [&str; 3] = ["streamId", "dataId", "endpointServiceId"];
/// Calls whose answers contain measurements of the machine.
const MEASURED: [&str; 9] = [
    "/system-",
    "/cpu",
    "/jvm",
    "/file-system",
    "/threads",
    "/server-time",
    "/live-clients",
    "/gpu",
    "/log-file/",
];

/// Returns all differences, each as a line. The list is empty if the answers are equal.
pub(super) fn differences(call: &Call, ours: &Answer) -> Vec<String> {
    let theirs = &call.answer;
    if theirs.status != ours.status {
        return vec![format!("status {} -> {}", theirs.status, ours.status)];
    }
    let mut out = Vec::new();
    let is_text = theirs.fields.get("content-type").is_some_and(|value| value.starts_with("text/"));
    let is_page = theirs.status >= 400 && is_text;
    let measured =
        call.name.split_whitespace().any(|word| MEASURED.iter().any(|start| word.starts_with(start)));
    match (serde_json::from_str(&theirs.body), serde_json::from_str(&ours.body)) {
        (Ok(theirs), Ok(ours)) => {
            // Application settings of this server's protocols follow the settings that Ant Media Server also has.
            let extended = call.path.contains("/settings/");
            Walk { measured, extended, out: &mut out }.values("", &theirs, &ours);
        }
        _ if is_page || theirs.body == ours.body => {}
        _ => out.push(format!("body {} -> {}", short(&theirs.body), short(&ours.body))),
    }
    for name in
        call.answer.fields.keys().chain(ours.fields.keys().filter(|name| !theirs.fields.contains_key(*name)))
    {
        let (a, b) = (theirs.fields.get(name), ours.fields.get(name));
        if listed(name, a) != listed(name, b) && !(is_page && name == "content-type") {
            let shown = |value: Option<&String>| value.map_or("none", String::as_str).to_owned();
            out.push(format!("{name} {} -> {}", shown(a), shown(b)));
        }
    }
    out
}

/// Returns a header field's value. Values that are lists without an order are sorted.
fn listed(name: &str, value: Option<&String>) -> Option<String> {
    let value = value?;
    if !name.starts_with("access-control-allow-") {
        return Some(value.clone());
    }
    let mut items: Vec<String> = value.split(',').map(|item| item.trim().to_lowercase()).collect();
    items.sort();
    Some(items.join(","))
}

/// Returns the beginning of a text, without line breaks and characters that the table of differences cannot contain.
fn short(text: &str) -> String {
    let text: String = text.chars().take(120).collect();
    text.replace(['\n', '\r', '|', '`'], " ")
}

#[derive(Debug)]
struct Walk<'a> {
    measured: bool,
    extended: bool,
    out: &'a mut Vec<String>,
}

impl Walk<'_> {
    fn values(&mut self, path: &str, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => self.objects(path, theirs, ours),
            (Value::Array(theirs), Value::Array(ours))
                if names(theirs).is_some() && names(ours).is_some() =>
            {
                self.named(path, theirs, ours);
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                if theirs.len() != ours.len() {
                    self.out.push(format!("length of {} {} -> {}", shown(path), theirs.len(), ours.len()));
                }
                for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                    self.values(&format!("{path}[{index}]"), theirs, ours);
                }
            }
            (theirs, ours) if self.measured && is_same_type(theirs, ours) => {}
            (theirs, ours) => {
                let member = path.rsplit('.').next().unwrap_or_default();
                let (theirs, ours) = (settled(member, theirs), settled(member, ours));
                if theirs != ours {
                    let text = |value: &Value| short(&value.to_string());
                    self.out.push(format!("~{path} {} -> {}", text(&theirs), text(&ours)));
                }
            }
        }
    }

    /// Compares lists of named objects by name, because Ant Media Server returns some of them in no fixed order.
    fn named(&mut self, path: &str, theirs: &[Value], ours: &[Value]) {
        let (their_names, our_names) = (names(theirs).unwrap_or_default(), names(ours).unwrap_or_default());
        for (name, value) in their_names.iter().zip(theirs) {
            match our_names.iter().position(|known| known == name) {
                Some(at) => self.values(&format!("{path}[{}]", short(name)), value, &ours[at]),
                None => self.out.push(format!("-{path}[{}]", short(name))),
            }
        }
        for name in our_names.iter().filter(|name| !their_names.contains(name)) {
            self.out.push(format!("+{path}[{}]", short(name)));
        }
    }

    fn objects(&mut self, path: &str, theirs: &Map<String, Value>, ours: &Map<String, Value>) {
        let here = |name: &str| format!("{path}.{name}");
        for (name, value) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
            self.out.push(format!("-{} {}", here(name), short(&value.to_string())));
        }
        let is_known = |name: &str| theirs.contains_key(name) || OURS.contains(&name);
        let more: Vec<_> = ours.iter().filter(|(name, _)| !self.extended && !is_known(name)).collect();
        for (name, value) in more {
            self.out.push(format!("+{} {}", here(name), short(&value.to_string())));
        }
        let common = theirs.keys().filter(|name| ours.contains_key(*name));
        if !common.eq(ours.keys().filter(|name| theirs.contains_key(*name))) {
            self.out.push(format!("order of {}", shown(path)));
        }
        for (name, value) in theirs {
            if let Some(ours) = ours.get(name) {
                self.values(&here(name), value, ours);
            }
        }
    }
}

/// Returns the names of the objects in a list, or `None` if an object has no name or two have the same name.
fn names(list: &[Value]) -> Option<Vec<&str>> {
    fn name(object: &Value) -> Option<&str> {
        NAMES.iter().find_map(|member| object.get(member)?.as_str())
    }
    let found: Vec<&str> = list.iter().map(name).collect::<Option<_>>()?;
    let distinct: BTreeSet<&str> = found.iter().copied().collect();
    (!found.is_empty() && distinct.len() == found.len()).then_some(found)
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

fn is_same_type(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Number(theirs), Value::Number(ours)) => theirs.is_f64() == ours.is_f64(),
        (Value::String(_), Value::String(_)) => true,
        (theirs, ours) => theirs == ours,
    }
}

/// Returns the value, or a placeholder for its type if the value differs between runs.
fn settled(member: &str, value: &Value) -> Value {
    let text = match value {
        Value::Number(_) if VOLATILE.contains(&member) => return "<number>".into(),
        Value::String(_) if VOLATILE.contains(&member) => return "<text>".into(),
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return value.clone();
        }
    };
    let id = |text: &str| if is_made(text) { "<made>".to_owned() } else { text.to_owned() };
    if IDS.contains(&member) {
        return id(text).into();
    }
    let url = text
        .strip_prefix("rtmp://")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(_, path)| path.split_once('/'));
    match url.filter(|_| member == "rtmpURL") {
        Some((app, name)) => format!("rtmp://host/{app}/{}", id(name)).into(),
        None => value.clone(),
    }
}

/// Returns whether a server made this id. Such ids are 16 letters or digits with a long number, a long number, `custom`
/// with six letters or digits, a code of six digits, or 20 to 40 letters or digits.
fn is_made(text: &str) -> bool {
    let (letters, digits) = text.split_at_checked(16).unwrap_or((text, ""));
    let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric());
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    is_word(text)
        && ((letters.len() == 16 && digits.len() >= 6 && is_number(digits))
            || (text.len() >= 15 && is_number(text))
            || (text.len() == 12 && text.starts_with("custom"))
            || (text.len() == 6 && is_number(text))
            || (20..=40).contains(&text.len()))
}
