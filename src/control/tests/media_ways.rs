//! Checks of a live stream apply to everything that is made of the stream: each check is tested with each way to get
//! the media.

use super::access::{no, params, token_of};
use super::*;
use crate::auth::access::{Denial, Direction, Secret, hash_token, sign_jwt};
use crate::control::records::auxiliary::{Auxiliary, Vod};
use crate::mail::{NoSubscription, PlayRequest, PolledRequest};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A way to get media: the name under which viewers are counted, the file, whether the stream is live, and whether the
/// request has found the file.
#[derive(Debug, Clone, Copy)]
struct Way {
    egress: &'static str,
    file: Option<&'static str>,
    live: bool,
    found: bool,
}

const fn live(egress: &'static str) -> Way {
    Way { egress, file: None, live: true, found: false }
}

const fn polled(egress: &'static str, file: &'static str, live: bool, found: bool) -> Way {
    Way { egress, file: Some(file), live, found }
}

const WAYS: [Way; 12] = [
    live("flv"),
    live("ts"),
    live("rtsp"),
    live("webrtc"),
    polled("hls", "s.m3u8", true, false),
    polled("hls", "s000000001.ts", true, false),
    polled("dash", "s/s.mpd", true, false),
    polled("hls", "s.m3u8", false, true),
    polled("dash", "s/s.mpd", false, true),
    polled("vod", "s.mp4", false, true),
    polled("vod", "s.webm", true, true),
    polled("vod", "s_1.mp4.tmp_extension", true, true),
];

/// The checks, with the settings that enable them.
const CHECKS: [(&str, &[(&str, &str)]); 5] = [
    ("token", &[("playTokenControlEnabled", "true")]),
    ("jwt", &[("playJwtControlEnabled", "true"), ("jwtStreamSecretKey", SECRET)]),
    ("hash", &[("hashControlPlayEnabled", "true"), ("tokenHashSecret", SECRET)]),
    ("code", &[("enableTimeTokenForPlay", "true"), ("timeTokenSecretForPlay", "salt")]),
    ("hook", &[("webhookPlayAuthUrl", "http://192.0.2.80/play")]),
];

impl Rig {
    /// Makes the request of a viewer of the stream, or of a file with its name.
    fn way(&mut self, way: Way, name: &str, shown: &[(String, String)]) -> PlayRequest {
        let file = way.file.map(str::to_owned);
        let polled = file.map(|file| PolledRequest {
            who: format!("{shown:?}"),
            former: None,
            file,
            found: way.found,
        });
        PlayRequest {
            session: self.session(1),
            key: StreamKey::new("live", name),
            egress: way.egress,
            peer: "198.51.100.9:4000".parse().unwrap(),
            params: shown.to_vec(),
            origin: String::new(),
            polled,
        }
    }

    /// Sends the request of a viewer. The hook receiver answers with status `says`. Returns the verdict, and the
    /// number of questions to the receiver.
    fn try_way(&mut self, request: PlayRequest, says: u16) -> (Result<(), NoSubscription>, usize) {
        let session = request.session;
        self.mail(ToControl::Play(Box::new(request)));
        let asked = std::mem::take(&mut self.hooks);
        for one in &asked {
            self.done(one.id, Outcome::Posted(Ok(says)));
        }
        let verdict = self.posted.iter().find_map(|(_, mail)| match mail {
            ToWorker::PlayVerdict { conn, verdict, .. } | ToWorker::Pass { conn, verdict }
                if *conn == session.conn =>
            {
                Some(verdict.clone())
            }
            _ => None,
        });
        self.posted.clear();
        (verdict.expect("a verdict"), asked.len())
    }

    /// Returns credentials that pass a check.
    fn shown_for(&mut self, check: &str) -> Vec<(String, String)> {
        let secret = Secret::new(SECRET);
        let token = match check {
            "token" => token_of(self, "s", "play"),
            "jwt" => sign_jwt("s", "play", 9_999_999_999, &secret).unwrap(),
            "hash" => hash_token("s", Direction::Play, &secret),
            "code" => {
                let (_, told) = self.get("/live/rest/v2/broadcasts/s/subscribers/alice/totp?type=play");
                let told: serde_json::Value = serde_json::from_str(&told).unwrap();
                let code = told["dataId"].as_str().unwrap();
                return params(&[("subscriberId", "alice"), ("subscriberCode", code)]);
            }
            _ => return params(&[("token", "anything")]),
        };
        params(&[("token", &token)])
    }

    fn file_recorded(&mut self, id: &str, file: &str, stream: &str, kind: &str) {
        let vod = Vod {
            vod_id: Some(id.to_owned()),
            stream_id: Some(stream.to_owned()),
            file_path: Some(format!("streams/{file}")),
            kind: Some(kind.to_owned()),
            ..Vod::default()
        };
        self.control.records.auxiliary.insert(Vod::key(&"live".into(), id), Auxiliary::Vod(vod));
    }
}

#[test]
fn r_50_each_check_holds_for_each_way_to_get_the_media() {
    for (check, settings) in CHECKS {
        for way in WAYS {
            let mut rig = Rig::with(&[], settings);
            rig.create("s");
            rig.file_recorded("1", "s_1.mp4", "s", Vod::RECORDED);
            if way.live {
                rig.publish("s", 0);
            }
            let name = if way.egress == "vod" { "s_1" } else { "s" };
            let without = rig.way(way, name, &[]);
            let (verdict, asked) = rig.try_way(without, 403);
            assert!(matches!(verdict, Err(NoSubscription::Denied(_))), "{check} {way:?}: {verdict:?}");
            assert_eq!(asked, usize::from(check == "hook"), "{check} {way:?}");
            let shown = rig.shown_for(check);
            let with = rig.way(way, name, &shown);
            assert_eq!(rig.try_way(with, 200).0, Ok(()), "{check} {way:?}");
            // A one-time token is valid once, in whatever way it was used.
            if check == "token" {
                let again =
                    PlayRequest { peer: "203.0.113.77:1".parse().unwrap(), ..rig.way(way, name, &shown) };
                assert_eq!(rig.try_way(again, 200).0, Err(no(Denial::Token)), "{way:?}");
            }
        }
    }
}

#[test]
fn nobody_is_asked_and_nothing_used_up_before_something_is_found() {
    for way in WAYS.iter().filter(|way| way.found) {
        for (check, settings) in [CHECKS[0], CHECKS[4]] {
            let mut rig = Rig::with(&[], settings);
            rig.create("s");
            let shown = rig.shown_for(check);
            let early = Way { found: false, ..*way };
            for _ in 0..3 {
                let request = rig.way(early, "s", &shown);
                assert_eq!(rig.try_way(request, 403), (Err(NoSubscription::NotFound), 0), "{check} {way:?}");
            }
            let request = rig.way(*way, "s", &shown);
            assert_eq!(rig.try_way(request, 200).0, Ok(()), "{check} {way:?}");
            // An admitted viewer has a pass for its next requests.
            let request = rig.way(early, "s", &shown);
            assert_eq!(rig.try_way(request, 403), (Ok(()), 0), "{check} {way:?}");
        }
    }
}

#[test]
fn a_recording_is_of_the_stream_that_its_record_names() {
    let mut rig = Rig::with(&[], CHECKS[1].1);
    rig.create("cam");
    rig.create("meeting");
    // `cam_1.mp4` is of the stream `cam_1`, which has no record, but could by its name be the second file of `cam`.
    // `sub/meeting.mp4` has another name than its stream, `vip`.
    rig.file_recorded("1", "cam_1.mp4", "cam_1", Vod::RECORDED);
    rig.file_recorded("2", "sub/meeting.mp4", "vip", Vod::RECORDED);
    rig.file_recorded("3", "abc.mp4", "file", Vod::UPLOADED);
    let cases = [
        ("cam_1.mp4", "cam_1", "cam_1", "cam"),
        ("sub/meeting.mp4", "meeting", "vip", "meeting"),
        ("sub/meeting.mp4.tmp_extension", "meeting.mp4", "vip", "meeting"),
        ("abc.mp4", "abc", "abc", "file"),
        // The stream of a file without a record is determined by the file's name.
        ("cam_2.mp4", "cam_2", "cam", "cam_2"),
    ];
    for (file, stem, right, wrong) in cases {
        let mut ask = |stream: &str| {
            let token = sign_jwt(stream, "play", 9_999_999_999, &Secret::new(SECRET)).unwrap();
            let mut request = rig.way(polled("vod", "", false, true), stem, &params(&[("token", &token)]));
            request.polled.as_mut().unwrap().file = file.to_owned();
            rig.try_way(request, 200).0
        };
        assert_eq!(ask(wrong), Err(no(Denial::Jwt)), "{file} with a token for {wrong}");
        assert_eq!(ask(right), Ok(()), "{file} with a token for {right}");
    }
    // The index of files forgets a path once the record with that path is removed or names another file.
    rig.file_recorded("2", "sub/other.mp4", "vip", Vod::RECORDED);
    let app: Arc<str> = "live".into();
    assert_eq!(rig.control.files.stream_of_file(&rig.control.records, &app, "sub/meeting.mp4"), None);
    assert_eq!(
        rig.control.files.stream_of_file(&rig.control.records, &app, "sub/other.mp4").as_deref(),
        Some("vip")
    );
    rig.control.records.auxiliary.remove(&Vod::key(&app, "2"));
    assert_eq!(rig.control.files.stream_of_file(&rig.control.records, &app, "sub/other.mp4"), None);
}
