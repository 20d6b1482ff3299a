//! A protocol owns its edges: outside of its folder and its row nothing names it, neither in code nor in literals.
//! Documentation may.

use crate::code;

/// Protocols, and where they are named: their folder.
const PROTOCOLS: [(&str, &str); 2] = [("rtmp", "src/protocol/rtmp/"), ("srt", "src/protocol/srt/")];

/// The list of protocols, and the module that declares their folders.
const REGISTRY: [&str; 2] = ["src/protocol/registry.rs", "src/protocol/mod.rs"];

/// Words that stand elsewhere, and why. This list only becomes shorter.
const WORDS: [(&str, &str); 19] = [
    ("rtmpURL", "member of a broadcast, in the reference's API"),
    ("rtmp_url", "the field of that name, and of an endpoint's rtmpUrl"),
    ("rtmpUrl", "member of an endpoint"),
    ("rtmpViewerCount", "member of a broadcast: viewers over every protocol but HLS, DASH and WebRTC"),
    ("rtmp_viewer_count", "the field of that name"),
    ("totalRTMPWatchersCount", "member of the statistics, likewise"),
    ("rtmp-endpoint", "path of the reference's API"),
    ("Add an RTMP endpoint", "what the reference calls it, in /openapi.json"),
    ("Remove an RTMP endpoint", "likewise"),
    ("rtmp-url", "member of the hook endpointFailed"),
    ("rtmpPort", "member of the server's settings"),
    ("srtPort", "member of the server's settings"),
    ("server.srt_port", "its key in the reference's file"),
    ("appIngestsSrtStreamsWithoutStreamId", "member of the server's settings, and its key"),
    ("srt-stats", "path of the API"),
    ("SrtStatistics", "the schema of its answer"),
    ("SRT connections of a live stream", "what it is, in /openapi.json"),
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
