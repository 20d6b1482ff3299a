//! The shape of types: no type with over 15 fields or over 80 methods, no trait with empty methods.

use std::collections::BTreeMap;

use crate::code;

const FIELDS_MAX: usize = 15;

/// Types that have more fields, and how many they may have. Settings and figures are lists of what there is, and stay;
/// the others are to be divided. Of those, the list only becomes shorter.
const LARGE: [(&str, usize); 16] = [
    ("proto-impl/ice/src/stats.rs::Stats", 16),
    ("proto-impl/media/src/timeline/limits.rs::Limits", 22),
    ("proto-impl/media/src/timeline/track.rs::TrackClock", 23),
    ("proto-impl/mpegts/src/demux/mod.rs::Stats", 16),
    ("proto-impl/rtmp/src/config.rs::Config", 17),
    ("proto-impl/rtp/src/bandwidth/feedback.rs::Feedback", 16),
    ("proto-impl/srt/src/config.rs::Config", 17),
    ("proto-impl/srt/src/stats.rs::Stats", 37),
    ("src/bench/options.rs::Options", 16),
    ("src/config/app.rs::AppSettings", 23),
    ("src/config/server.rs::ServerSettings", 22),
    // Its members are those of Ant Media Server's object.
    ("src/control/records/auxiliary/vod.rs::Vod", 23),
    ("proto-impl/http1/src/limits.rs::Limits", 17),
    ("proto-impl/http1/src/websocket/machine.rs::WebSocket", 17),
    ("src/stats/host.rs::HostFigures", 19),
    ("src/stats/mod.rs::ControlFigures", 18),
];

const METHODS_MAX: usize = 80;

/// Types that have more methods, by their room, and how many they may have: halls, to be divided. The list only becomes
/// shorter. A function that takes one of [`HALLS`] as `&mut` counts as a method of it.
const MANY: [(&str, usize); 0] = [];

const HALLS: [&str; 2] = ["Control", "Worker"];

/// Traits with methods that do nothing unless they are overridden, and how many. (A capability that answers `None`
/// unless somebody has it is none of them.) This list only becomes shorter.
const IDLE: [(&str, usize); 0] = [];

/// The pieces between the commas of `list` that stand in no bracket.
fn pieces(list: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut level, mut begin, mut before) = (0i32, 0, ' ');
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => level += 1,
            ')' | ']' | '}' => level -= 1,
            '>' if before != '-' && before != '=' => level -= 1,
            ',' if level == 0 => {
                pieces.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    pieces.push(&list[begin..]);
    pieces.into_iter().filter(|piece| !piece.trim().is_empty()).collect()
}

/// The structs of the server and of the crates, and their fields.
fn fields() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in code::server().into_iter().chain(code::crates()) {
        for at in code::words(&file.text, "struct ") {
            let rest = &file.text[at + "struct ".len()..];
            let name = code::word(rest);
            let Some(open) = rest.find(['{', ';', '(']).filter(|open| rest[*open..].starts_with('{')) else {
                continue;
            };
            found.insert(format!("{}::{name}", file.path), pieces(code::block(&rest[open..])).len());
        }
    }
    found
}

/// The room of a file: `src/worker`, `src/protocol/hls`, `proto-impl/srt`.
fn room(path: &str) -> String {
    let depth = if path.starts_with("src/protocol/") { 3 } else { 2 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

/// The types and their methods, those of traits aside.
fn methods() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in code::server().into_iter().chain(code::crates()) {
        for at in code::words(&file.text, "impl") {
            let head = &file.text[at + "impl".len()..];
            let Some(open) = head.find(['{', ';']).filter(|open| head[*open..].starts_with('{')) else {
                continue;
            };
            let body = code::block(&head[open..]);
            let of = head[..open].trim_start_matches(|c: char| c != ' ').trim();
            if of.contains(" for ") || !file.text[..at].ends_with(['\n', ' ']) {
                continue;
            }
            let name = format!("{}::{}", room(&file.path), code::word(of));
            *found.entry(name).or_default() += code::words(body, "fn ").count();
        }
        for hall in HALLS {
            let taken = format!(": &mut {hall}");
            let name = format!("{}::{hall}", room(&file.path));
            *found.entry(name).or_default() += file.text.matches(&taken).count();
        }
    }
    found
}

/// The traits with methods that do nothing of themselves, and those methods.
fn idle_methods() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in code::server() {
        for at in code::words(&file.text, "trait ") {
            let rest = &file.text[at + "trait ".len()..];
            let Some(open) = rest.find('{') else { continue };
            let body = code::block(&rest[open..]);
            for method in code::words(body, "fn ") {
                let signature = &body[method + "fn ".len()..];
                let Some(end) = signature.find([';', '{']).filter(|end| signature[*end..].starts_with('{'))
                else {
                    continue;
                };
                if code::block(&signature[end..]).trim().is_empty() {
                    let name = format!("{}::{}", file.path, code::word(rest));
                    found.entry(name).or_default().push(code::word(signature).to_owned());
                }
            }
        }
    }
    found
}

/// Returns the entries that are listed with another number than there is.
fn differences(found: &BTreeMap<String, usize>, listed: &[(&str, usize)]) -> Vec<String> {
    let listed: BTreeMap<&str, usize> = listed.iter().copied().collect();
    let new =
        found.iter().filter(|(name, count)| listed.get(name.as_str()).is_none_or(|listed| listed < count));
    let gone = listed.iter().filter(|(name, count)| found.get(**name).is_none_or(|found| found < *count));
    let new =
        new.map(|(name, count)| format!("{name} has {count}, and the list {:?}", listed.get(name.as_str())));
    let gone = gone.map(|(name, count)| format!("the list says {count} of {name}; take off what is gone"));
    new.chain(gone).collect()
}

#[test]
fn no_type_has_over_15_fields_but_the_listed() {
    let all = fields();
    assert!(all.len() > 200, "the sources were not read: {} types", all.len());
    let large = all.into_iter().filter(|(_, count)| *count > FIELDS_MAX).collect();
    let faults = differences(&large, &LARGE);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_type_has_over_80_methods_but_the_listed() {
    let all = methods();
    assert!(all.len() > 400, "the sources were not read: {} types", all.len());
    let many = all.into_iter().filter(|(_, count)| *count > METHODS_MAX).collect();
    let faults = differences(&many, &MANY);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_trait_has_idle_methods_but_the_listed() {
    let found = idle_methods();
    let counts = found.iter().map(|(name, methods)| (name.clone(), methods.len())).collect();
    let faults = differences(&counts, &IDLE);
    assert!(faults.is_empty(), "{}\n{found:#?}", faults.join("\n"));
}
