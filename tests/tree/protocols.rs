//! A protocol owns its edges: outside of its folder and its row nothing names it, neither in code nor in literals.
//! Documentation may. Of every row of the registry, whatever it is called, no other part uses the folder.

use std::collections::BTreeSet;

use crate::source::File;
use crate::{code, imports};

/// Protocols, and where they are named: their folder.
const PROTOCOLS: [(&str, &str); 2] = [("rtmp", "src/protocol/rtmp/"), ("srt", "src/protocol/srt/")];

/// The list of protocols, and the module that declares their folders.
const REGISTRY: [&str; 2] = ["src/protocol/registry.rs", "src/protocol/mod.rs"];

/// Words that stand elsewhere, and why. This list only becomes shorter.
const WORDS: [(&str, &str); 20] = [
    ("rtmpURL", "member of a broadcast, in Ant Media Server's API"),
    ("rtmp_url", "the field of that name, and of an endpoint's rtmpUrl"),
    ("rtmpUrl", "member of an endpoint"),
    ("rtmpViewerCount", "member of a broadcast: viewers over every protocol but HLS, DASH and WebRTC"),
    ("rtmp_viewer_count", "the field of that name"),
    ("totalRTMPWatchersCount", "member of the statistics, likewise"),
    ("rtmp-endpoint", "path of Ant Media Server's API"),
    ("Add an RTMP endpoint", "what Ant Media Server calls it, in /openapi.json"),
    ("Remove an RTMP endpoint", "likewise"),
    ("rtmp-url", "member of the hook endpointFailed"),
    ("rtmpPort", "member of the server's settings"),
    ("srtPort", "member of the server's settings"),
    ("server.srt_port", "its key in Ant Media Server's file"),
    ("appIngestsSrtStreamsWithoutStreamId", "member of the server's settings, and its key"),
    ("srt-stats", "path of the API"),
    ("SrtStatistics", "the schema of its answer"),
    ("SRT connections of a live stream", "what it is, in /openapi.json"),
    ("relayRTMPMetaDataToMuxers", "key of Ant Media Server, about what other formats are given"),
    ("msRTT", "no protocol: the round trip in milliseconds"),
    ("Certificate of HTTPS and RTMPS", "a comment of the settings file that every home has"),
];

#[test]
fn nothing_but_its_own_folder_names_a_protocol() {
    let mut faults = Vec::new();
    let mut used = vec![false; WORDS.len()];
    for file in code::server_with_literals() {
        if REGISTRY.contains(&file.path.as_str()) {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let mut rest = line.to_owned();
            for (at, (word, _)) in WORDS.iter().enumerate().filter(|(_, (word, _))| line.contains(word)) {
                used[at] = true;
                rest = rest.replace(word, "");
            }
            let lower = rest.to_ascii_lowercase();
            let named =
                |(name, folder): &(&str, &str)| lower.contains(name) && !file.path.starts_with(folder);
            if PROTOCOLS.iter().any(named) {
                faults.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    faults.extend(
        WORDS
            .iter()
            .zip(used)
            .filter(|(_, used)| !used)
            .map(|((word, _), _)| format!("{word} is gone: take it off the list")),
    );
    assert!(faults.is_empty(), "protocols are named outside of their folders:\n{}", faults.join("\n"));
}

/// Files that use a row's folder by its name, and why. This list only becomes shorter.
const USES: [(&str, &str, &str); 6] = [
    ("src/import/mod.rs", "http", "which paths have a built-in page"),
    ("src/protocol/row.rs", "http", "the handler of a mount"),
    ("src/protocol/load.rs", "rtsp", "the load generator's mux, for the program that measures"),
    ("src/protocol/hls/tailor.rs", "http", "the transport of playlists"),
    ("src/protocol/webrtc/", "http", "the transport of signalling"),
    ("src/protocol/http_live/", "http", "the transport of the stream"),
];

/// Folders below `src/protocol` that declare a row.
fn rows(files: &[File]) -> BTreeSet<String> {
    let declares = |file: &&File| file.text.contains("static PROTOCOL: Protocol");
    files.iter().filter(declares).filter_map(|file| part_of(&file.path)).collect()
}

/// The part of `src/protocol` that a file belongs to.
fn part_of(path: &str) -> Option<String> {
    let below = path.strip_prefix("src/protocol/")?;
    Some(below.split('/').next()?.trim_end_matches(".rs").to_owned())
}

#[test]
fn rows_are_used_by_the_registry_alone() {
    let files = code::server();
    let rows = rows(&files);
    assert!(rows.len() >= 11, "rows were not found: {rows:?}");
    let mut faults = Vec::new();
    let mut used = vec![false; USES.len()];
    for file in files.iter().filter(|file| !REGISTRY.contains(&file.path.as_str())) {
        let own = part_of(&file.path);
        for row in imports::heads_from(file, "protocol").into_iter().filter(|head| rows.contains(head)) {
            if own.as_deref() == Some(row.as_str()) {
                continue;
            }
            match USES.iter().position(|(path, name, _)| file.path.starts_with(path) && *name == row) {
                Some(at) => used[at] = true,
                None => faults.push(format!("{} uses {row}", file.path)),
            }
        }
    }
    let gone = USES.iter().zip(used).filter(|(_, used)| !used);
    faults
        .extend(gone.map(|((path, row, _), _)| format!("{path} uses {row} no longer: take it off the list")));
    assert!(faults.is_empty(), "rows are used beside the registry:\n{}", faults.join("\n"));
}
