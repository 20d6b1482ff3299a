//! Uses of the wall clock, which may be set at any time: each file that has one says what it is for. A duration is none
//! of them.

use std::collections::BTreeMap;

use crate::code;

/// Words that mean the wall clock.
const WORDS: [&str; 6] = ["wall_ms", "wall_date", "wall", "SystemTime", "NtpAnchor", "Calendar"];

/// Reasons to use the wall clock.
const SHOWN: &str = "shown, logged or stored for people and programs that ask when";
const COMPARED: &str = "compared with a date that came from outside, or from an earlier life of the server";
const MEDIA: &str = "the only reading that dates media, which counts on from it by monotonic time";
const CARRIED: &str = "carried to one of the others";
const UNIQUE: &str = "part of a name or a number that is to be unlike those of earlier lives of the server";

/// The files, and what they use the wall clock for.
const USES: &[(&str, &str)] = &[
    ("src/auth/access.rs", COMPARED),
    ("src/auth/jwt.rs", COMPARED),
    ("src/auth/time_code.rs", COMPARED),
    ("src/control/access/mod.rs", COMPARED),
    ("src/control/access/presence.rs", SHOWN),
    ("src/control/admission/steps.rs", COMPARED),
    ("src/control/backups.rs", UNIQUE),
    ("src/control/broadcast.rs", COMPARED),
    ("src/control/connections.rs", SHOWN),
    ("src/control/context.rs", SHOWN),
    ("src/control/copies.rs", COMPARED),
    ("src/control/endpoints.rs", SHOWN),
    ("src/control/folders.rs", SHOWN),
    ("src/control/hooks/events.rs", SHOWN),
    ("src/control/key_sets.rs", COMPARED),
    ("src/control/leaving.rs", SHOWN),
    ("src/control/live.rs", COMPARED),
    ("src/control/mod.rs", SHOWN),
    ("src/control/playlists.rs", COMPARED),
    ("src/control/recordings/files.rs", COMPARED),
    ("src/control/recordings/mod.rs", UNIQUE),
    ("src/control/recordings/names.rs", UNIQUE),
    ("src/control/recordings/rooms.rs", SHOWN),
    ("src/control/records/auxiliary/subscriber.rs", COMPARED),
    ("src/control/records/auxiliary/token.rs", COMPARED),
    ("src/control/registry.rs", SHOWN),
    ("src/control/rest/apps.rs", SHOWN),
    ("src/control/rest/broadcasts.rs", CARRIED),
    ("src/control/rest/conference.rs", SHOWN),
    ("src/control/rest/features.rs", COMPARED),
    ("src/control/rest/feed.rs", SHOWN),
    ("src/control/rest/host.rs", SHOWN),
    ("src/control/rest/nodes.rs", SHOWN),
    ("src/control/rest/players.rs", COMPARED),
    ("src/control/rest/subscribers.rs", COMPARED),
    ("src/control/sources.rs", SHOWN),
    ("src/control/subtracks.rs", SHOWN),
    ("src/control/uploads.rs", SHOWN),
    ("src/hub/ring.rs", CARRIED),
    ("src/io/clock.rs", CARRIED),
    ("src/io/import_tool.rs", COMPARED),
    ("src/io/jobs/dvr.rs", COMPARED),
    ("src/io/jobs/posts.rs", SHOWN),
    ("src/io/jobs/roles.rs", COMPARED),
    ("src/io/load/mod.rs", MEDIA),
    ("src/io/log_line.rs", SHOWN),
    ("src/io/store_tools.rs", UNIQUE),
    ("src/mail/blob.rs", CARRIED),
    ("src/mail/recording.rs", CARRIED),
    ("src/protocol/hls/copies.rs", SHOWN),
    ("src/protocol/hls/ladder/clock.rs", MEDIA),
    ("src/protocol/hls/mod.rs", UNIQUE),
    ("src/protocol/hls/publishing.rs", UNIQUE),
    ("src/protocol/http/feed.rs", SHOWN),
    ("src/protocol/preview/sink.rs", UNIQUE),
    ("src/protocol/recording/sink.rs", CARRIED),
    ("src/protocol/http/files.rs", SHOWN),
    ("src/protocol/http/polled.rs", CARRIED),
    ("src/protocol/http/responder.rs", SHOWN),
    ("src/protocol/http/upload.rs", SHOWN),
    ("src/protocol/http_live/viewer.rs", SHOWN),
    ("src/protocol/rtsp/package.rs", MEDIA),
    ("src/protocol/samples/file_sink/mod.rs", SHOWN),
    ("src/protocol/turn/offer.rs", SHOWN),
    ("src/protocol/turn/port.rs", COMPARED),
    ("src/protocol/webrtc/ice_servers.rs", SHOWN),
    ("src/protocol/webrtc/load/client.rs", MEDIA),
    ("src/protocol/webrtc/port.rs", MEDIA),
    ("src/protocol/webrtc/session.rs", CARRIED),
    ("src/protocol/webrtc/statistics.rs", SHOWN),
    ("src/protocol/webrtc/whip.rs", SHOWN),
    ("src/types/mod.rs", CARRIED),
    ("src/types/time.rs", CARRIED),
    ("src/worker/demand.rs", CARRIED),
    ("src/worker/polled_tests/caches.rs", CARRIED),
    ("src/worker/publications.rs", CARRIED),
];

#[test]
fn q_04_every_use_of_the_wall_clock_has_a_reason() {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let uses = |text: &str| text.split(|c| !is_word(c)).any(|word| WORDS.contains(&word));
    let found: Vec<String> =
        code::server().into_iter().filter(|file| uses(&file.text)).map(|file| file.path).collect();
    let known: BTreeMap<_, _> = USES.iter().copied().collect();
    assert_eq!(known.len(), USES.len(), "a file is listed twice");
    for path in &found {
        assert!(
            known.contains_key(path.as_str()),
            "{path} uses the wall clock: list it with its reason, or count by `Now::mono`"
        );
    }
    for (path, reason) in USES {
        assert!(found.iter().any(|found| found == path), "{path} is listed and does not use the wall clock");
        assert!([SHOWN, COMPARED, MEDIA, CARRIED, UNIQUE].contains(reason), "{path}");
    }
}
