//! Tests the message sequences of Ant Media Server's SDKs for Android, iOS, Flutter and React Native: each message as the
//! SDK sends it, and the messages for which the SDK waits.

use serde_json::{Value, json};
use webrtc::Peer;

use crate::publish_play::is_broadcasting;
use crate::support::{Program, RtcClient, Server, h264_section, media_file, rtc_peer, secs, wait_for};
use crate::webrtc_rows::Socket;
use sdp::Direction;

/// A step of a sequence.
enum Step {
    /// The SDK sends this message.
    Says(&'static str),
    /// The SDK waits for a message with this command, or this definition.
    Hears(&'static str),
    /// The SDK sends its offer for the stream, receives the answer, and sends media until the server reports that the
    /// stream has started.
    Publishes(&'static str),
    /// Checks that the room has these streams.
    Room(&'static [&'static str]),
}

use Step::{Hears, Publishes, Room, Says};

/// The name and steps of a sequence.
type Row = (&'static str, &'static [Step]);

const ROWS: [Row; 10] = [
    (
        "Android: publishes into a room, and looks at it",
        &[
            Says(
                r#"{"command":"publish","streamId":"p0","token":"","subscriberId":"","subscriberCode":"","streamName":"p0","video":true,"audio":true,"mainTrack":"room"}"#,
            ),
            Hears("start"),
            Publishes("p0"),
            Room(&["ann", "p0"]),
            Says(r#"{"command":"ping"}"#),
            Hears("pong"),
            Says(r#"{"command":"getBroadcastObject","streamId":"room"}"#),
            Hears("broadcastObject"),
            Says(r#"{"command":"stop","streamId":"p0"}"#),
            Hears("publish_finished"),
        ],
    ),
    (
        "Android: plays the tracks of a room",
        &[
            Says(r#"{"command":"getTrackList","streamId":"room","token":""}"#),
            Hears("trackList"),
            Says(
                r#"{"command":"play","streamId":"room","token":"","trackList":[],"subscriberId":"","subscriberCode":"","viewerInfo":""}"#,
            ),
            Hears("takeConfiguration"),
            Says(r#"{"command":"enableTrack","streamId":"room","trackId":"ann","enabled":false}"#),
            Says(r#"{"command":"forceStreamQuality","streamId":"room","trackId":"ann","streamHeight":240}"#),
            Says(r#"{"command":"getStreamInfo","streamId":"ann"}"#),
            Hears("streamInformation"),
            Says(r#"{"command":"stop","streamId":"room"}"#),
            Hears("play_finished"),
        ],
    ),
    (
        "Android: joins a room, and leaves it without a stream's id",
        &[
            Says(r#"{"command":"joinRoom","room":"room","streamId":"p1"}"#),
            Hears("joinedTheRoom"),
            Says(
                r#"{"command":"publish","streamId":"p1","token":"","subscriberId":"","subscriberCode":"","streamName":"p1","video":true,"audio":true}"#,
            ),
            Hears("start"),
            Publishes("p1"),
            Room(&["ann", "p1"]),
            Says(r#"{"command":"getRoomInfo","room":"room","streamId":"p1"}"#),
            Hears("roomInformation"),
            Says(r#"{"command":"leaveFromRoom","room":"room"}"#),
            Hears("publish_finished"),
            Hears("leavedFromRoom"),
            Room(&["ann"]),
        ],
    ),
    (
        "Android: calls, and ends the call as a stream",
        &[
            Says(r#"{"command":"join","streamId":"call1","token":""}"#),
            Hears("joined"),
            Says(r#"{"command":"stop","streamId":"call1"}"#),
            Hears("leaved"),
        ],
    ),
    (
        "Android: asks for push notifications, which there are none of",
        &[
            Says(
                r#"{"command":"registerPushNotificationToken","subscriberId":"s","token":"t","pnsRegistrationToken":"r","pnsType":"fcm"}"#,
            ),
            Hears("notImplemented"),
        ],
    ),
    (
        "iOS: a conference, whose id the server gives or the app",
        &[
            Says(r#"{"command":"joinRoom","room":"room","mode":"multitrack","streamId":""}"#),
            Hears("joinedTheRoom"),
            Says(r#"{"command":"joinRoom","room":"room","mode":"multitrack","streamId":"p2"}"#),
            Hears("joinedTheRoom"),
            Says(
                r#"{"command":"publish","streamId":"p2","token":"","video":true,"audio":true,"mainTrack":"room","trackList":[]}"#,
            ),
            Hears("start"),
            Publishes("p2"),
            Room(&["ann", "p2"]),
            Says(
                r#"{"command":"play","streamId":"room","token":"","video":true,"audio":true,"mainTrack":"room","trackList":["!p2"]}"#,
            ),
            Hears("takeConfiguration"),
            Says(r#"{"command":"leaveFromRoom","room":"room","streamId":"p2"}"#),
            Hears("leavedFromRoom"),
            Room(&["ann"]),
        ],
    ),
    (
        "iOS: a call",
        &[
            Says(
                r#"{"command":"join","streamId":"call2","token":"","video":true,"audio":true,"trackList":[]}"#,
            ),
            Hears("joined"),
            Says(r#"{"command":"leave","streamId":"call2"}"#),
            Hears("leaved"),
        ],
    ),
    (
        "Flutter: joins, publishes with the room in the place of the token, and asks who is there",
        &[
            Says(r#"{"command":"joinRoom","streamId":"p3","room":"room"}"#),
            Hears("joinedTheRoom"),
            Says(r#"{"command":"publish","streamId":"p3","token":"room","video":true,"audio":true}"#),
            Hears("start"),
            Says(r#"{"command":"getRoomInfo","streamId":"p3","room":"room"}"#),
            Hears("roomInformation"),
            Publishes("p3"),
            Room(&["ann", "p3"]),
            Says(r#"{"command":"stop","streamId":"p3"}"#),
            Hears("publish_finished"),
        ],
    ),
    (
        "Flutter: a call",
        &[
            Says(r#"{"command":"join","streamId":"call3","multiPeer":false,"mode":"play or both"}"#),
            Hears("joined"),
            Says(r#"{"streamId":"call3","command":"leave"}"#),
            Hears("leaved"),
        ],
    ),
    (
        "React Native: joins, publishes, plays the others and leaves",
        &[
            Says(r#"{"command":"joinRoom","room":"room","streamId":"p4"}"#),
            Hears("joinedTheRoom"),
            Says(r#"{"command":"publish","streamId":"p4","video":true,"audio":true}"#),
            Hears("start"),
            Publishes("p4"),
            Room(&["ann", "p4"]),
            Says(r#"{"command":"play","streamId":"ann","room":"room"}"#),
            Hears("takeConfiguration"),
            Says(r#"{"command":"leaveFromRoom","room":"room"}"#),
            Hears("leavedFromRoom"),
            Room(&["ann"]),
        ],
    ),
];

/// The app that runs a row.
struct App<'a> {
    server: &'a Server,
    socket: Socket,
    /// The connections on which the app publishes.
    sends: Vec<RtcClient>,
}

impl App<'_> {
    fn says(&mut self, text: &str) {
        assert!(self.socket.say(text), "the server has closed the socket: {text}");
    }

    /// Waits for a message. Panics on an unexpected error, because an SDK would stop there.
    fn hears(&mut self, name: &str) -> Value {
        loop {
            let message = self.socket.hear().unwrap_or_else(|| panic!("no {name}"));
            if message["command"] == name || message["definition"] == name {
                return message;
            }
            assert_ne!(message["command"], "error", "in place of {name}: {message}");
        }
    }

    fn publishes(&mut self, id: &str) {
        let mut peer: Peer = rtc_peer();
        let offer = peer.offer(&h264_section(Direction::SendOnly)).unwrap().write();
        let told = json!({"command": "takeConfiguration", "streamId": id, "type": "offer", "sdp": offer});
        self.says(&told.to_string());
        let answer = self.hears("takeConfiguration");
        let mut sends = RtcClient::publish_answered(peer, answer["sdp"].as_str().unwrap());
        let record = || self.server.api().broadcast("live", id);
        let received = || record().and_then(|one| one["receivedBytes"].as_u64()).unwrap_or(0);
        sends.run_until("media at the server", secs(30), |_| received() > 0);
        self.sends.push(sends);
        self.hears("publish_started");
    }

    fn room(&self, streams: &[&str]) {
        let path = "/live/rest/v2/broadcasts/room/active-subtracks/0/50";
        wait_for(&format!("{streams:?} in the room"), secs(20), || {
            let list = self.server.api().get(path).json();
            let ids = list.as_array().into_iter().flatten().filter_map(|one| one["streamId"].as_str());
            ids.eq(streams.iter().copied())
        });
    }
}

#[test]
fn apps_of_the_references_sdks_get_what_they_wait_for() {
    let server = Server::start(&["server.workers=2", "app.publisherGraceMs=0"]);
    let file = media_file(false, 60);
    let _ann = Program::ffmpeg_publish(&file, &server.rtmp_url("live/ann?mainTrack=room"));
    wait_for("ann", secs(20), || is_broadcasting(&server, "ann"));
    for (what, steps) in ROWS {
        eprintln!("{what}");
        let socket = Socket::open(server.http);
        let mut app = App { server: &server, socket, sends: Vec::new() };
        for step in steps {
            match step {
                Says(text) => app.says(text),
                Hears(name) => drop(app.hears(name)),
                Publishes(id) => app.publishes(id),
                Room(streams) => app.room(streams),
            }
        }
    }
}
