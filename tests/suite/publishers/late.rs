//! Viewers over WebRTC and RTSP that join before the publisher's first audio unit or first picture. They cannot
//! negotiate a second time, and must get the late track nevertheless.

use std::time::Instant;

use bytes::Bytes;
use netsim::publisher::{Fault, Of, Publisher};
use netsim::{ms, secs};

use super::units::Unit;
use super::{STREAM, rtmp, rtsp, sender, ts, units, whip};
use crate::support::World;
use crate::support::world::{Got, Id, Over, url};

/// Time from the publisher's acceptance until a viewer joins, in milliseconds.
const JOIN_MS: u64 = 300;
/// Maximum time from a unit's sampling until a viewer has it, in milliseconds.
const LATENESS_MS: i64 = 500;
/// Length of the media, in seconds.
const SECONDS: i64 = 10;
/// Delay of a medium (audio or video) of which no unit is ever sent.
const NEVER: i64 = SECONDS * 1000;

/// Returns a unit as an Opus packet. Its first byte says 20 ms of stereo in one frame (RFC 6716 §3.1).
fn opus(unit: &Unit) -> Vec<u8> {
    [&[whip::TOC], &unit.payload[1..]].concat()
}

/// The codec of a publisher's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sound {
    Opus,
    /// AAC, of which each unit is silence.
    Aac,
}

/// An AAC-LC frame of stereo silence.
const SILENCE: [u8; 6] = [0x21, 0x10, 0x04, 0x60, 0x8c, 0x1c];

/// Adds a publisher of H.264 and audio. Of these two media, the late one starts with its first unit. If the protocol
/// permits, it is not announced before.
fn publish(world: &mut World, over: Over, sound: Sound, is_video: bool, sent: &[Unit]) -> Id {
    let (now, seed) = (world.instant(), world.client_seed());
    let from = sent.iter().find(|unit| unit.is_video == is_video).map_or(NEVER, |unit| unit.at);
    match over {
        Over::Rtmp => world.publish_by(over, Box::new(over_rtmp(sound, is_video, sent, from).into_sender())),
        Over::Srt => {
            let stream_id = format!("#!::r=live/{STREAM},m=publish");
            let pieces = over_srt(sound, is_video, sent, from).into_pieces();
            world.publish_by(over, Box::new(sender::SrtSender::new(now, &seed, &stream_id, pieces)))
        }
        Over::Rtsp => world.publish_by(over, Box::new(over_rtsp(sound, sent).into_sender(STREAM))),
        _ => {
            let url = url(over, "live", STREAM, "publish");
            world.publish_by(over, Box::new(whip::WhipSender::new(now, &url, seed, sent)))
        }
    }
}

fn over_rtmp(sound: Sound, is_video: bool, sent: &[Unit], from: i64) -> rtmp::Plan {
    let mut plan = rtmp::Plan::new(STREAM, sent);
    plan.messages.retain(|message| message.kind != rtmp::DATA);
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    for (n, message) in plan.of_kind(rtmp::AUDIO).enumerate().filter(|_| sound == Sound::Opus) {
        message.body = match n {
            0 => whip::opus_header(),
            _ => whip::opus_frame(sounds.next().unwrap()),
        };
    }
    let late = if is_video { rtmp::VIDEO } else { rtmp::AUDIO };
    let header = plan.of_kind(late).next().unwrap();
    header.at = from;
    plan.messages.sort_by_key(|message| message.at);
    plan
}

fn over_srt(sound: Sound, is_video: bool, sent: &[Unit], from: i64) -> ts::Plan {
    let mut plan = ts::Plan::new(sent);
    // The registration descriptor, and the extension descriptor for two channels.
    let stream = match sound {
        Sound::Opus => (6, ts::SOUND, b"\x05\x04Opus\x7f\x02\x80\x02".to_vec()),
        Sound::Aac => (ts::AAC, ts::SOUND, Vec::new()),
    };
    let video = (ts::H264, ts::VIDEO, Vec::new());
    let early = if is_video { stream.clone() } else { video.clone() };
    let of = |from, version, streams: Vec<(u8, u16, Vec<u8>)>| {
        let pcr = streams[0].1;
        ts::Tables { from, version, pcr, streams, ..ts::Tables::default() }
    };
    plan.tables = vec![of(0, 0, vec![early]), of(from, 1, vec![video, stream])];
    if sound == Sound::Aac {
        return plan;
    }
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    for pes in plan.of_pid(ts::SOUND) {
        let packet = opus(sounds.next().unwrap());
        let length = [vec![255; packet.len() / 255], vec![(packet.len() % 255) as u8]].concat();
        (pes.stream_id, pes.payload) = (0xbd, [&[0x7f, 0xe0][..], &length, &packet].concat());
    }
    plan
}

fn over_rtsp(sound: Sound, sent: &[Unit]) -> rtsp::Plan {
    let mut plan = rtsp::Plan::new(&units::clean(), sent);
    if sound == Sound::Aac {
        return plan;
    }
    let (head, _) = plan.sdp.split_once("m=audio").unwrap();
    let head: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with("a=fmtp")).collect();
    plan.sdp = format!(
        "{}m=audio 0 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\na=control:trackID=1\r\n",
        head.join("\r\n")
    );
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    plan.of_section(1).for_each(|packet| packet.payload = opus(sounds.next().unwrap()));
    // The parameter sets are sent only with the key frames.
    plan.expand(|packet| {
        let is_key = packet.section == 0
            && match packet.payload[0] & 0x1f {
                5 => true,
                // A FU-A with the first fragment of a key frame.
                28 => packet.payload[1] & 0x9f == 0x85,
                _ => false,
            };
        let sets =
            units::sets().map(|set| rtsp::Packet { payload: set.to_vec(), marker: false, ..packet.clone() });
        sets.into_iter().filter(|_| is_key).chain([packet]).collect()
    });
    plan
}

/// Returns the units of a publisher whose audio or video begins `late` milliseconds late.
fn late_units(sound: Sound, is_video: bool, late: i64) -> Vec<Unit> {
    let mut publisher = units::clean();
    publisher.seconds = SECONDS;
    let of = Of::One(usize::from(!is_video));
    publisher.faults = vec![Fault::Mute { of, at: 0, ms: late, stands: false }];
    let mut source = units::source().gop(25);
    let mut sent = units::units(&publisher, &mut source);
    let key = sent.iter().find(|unit| unit.is_video && unit.key).map_or(0, |unit| unit.at);
    sent.retain(|unit| !unit.is_video || unit.at >= key);
    for unit in sent.iter_mut().filter(|unit| sound == Sound::Aac && !unit.is_video) {
        unit.payload = Bytes::from_static(&SILENCE);
    }
    sent
}

/// A publisher's run, and a viewer that has seen all of it but the beginning.
struct Life {
    world: World,
    viewer: Id,
    sent: Vec<Unit>,
    began: Instant,
    /// Time from the publisher's acceptance to the viewer's, in milliseconds.
    joined: i64,
}

impl Life {
    /// Runs a publisher over `over` and a viewer over `by`.
    fn of(over: Over, by: Over, sound: Sound, (is_video, late): (bool, i64)) -> Result<Self, String> {
        let sent = late_units(sound, is_video, late);
        let mut world = World::new(1, 1, &[]).computing();
        let id = publish(&mut world, over, sound, is_video, &sent);
        world.run_until("the publisher", secs(5), |world| world.is_ready(id));
        let began = world.story(id).ready.unwrap();
        world.run_for((began + ms(JOIN_MS)).saturating_duration_since(world.instant()));
        let viewer = world.watch_over(by, "live", STREAM);
        let end = began + secs(SECONDS.unsigned_abs() + 1);
        world.run_for(end.saturating_duration_since(world.instant()));
        if !world.is_ready(viewer) {
            return Err(format!("{:?}", world.rejection(viewer)));
        }
        let joined = world.story(viewer).ready.unwrap().saturating_duration_since(began).as_millis();
        Ok(Self { world, viewer, sent, began, joined: i64::try_from(joined).unwrap() })
    }

    fn got(&self, is_video: bool) -> impl Iterator<Item = &Got> {
        self.world.got(self.viewer).iter().filter(move |unit| unit.is_video == is_video)
    }

    /// Returns the time of the first video unit, or of the first audio unit.
    fn begins(&self, is_video: bool) -> i64 {
        self.sent.iter().find(|unit| unit.is_video == is_video).map_or(NEVER, |unit| unit.at)
    }

    /// Checks that the viewer received, in time, every unit of a kind since it was accepted.
    fn check_kind(&self, is_video: bool) -> Result<(), String> {
        let begins = self.begins(is_video);
        let right: Vec<&Unit> = self
            .sent
            .iter()
            .filter(|unit| unit.is_video == is_video && unit.at >= begins.max(self.joined + LATENESS_MS))
            .filter(|unit| unit.at < NEVER - LATENESS_MS)
            .collect();
        let has = |unit: &&&Unit| {
            let at = self.began + ms((unit.at + LATENESS_MS).unsigned_abs());
            let is = |got: &Got| got.seen.is_ok_and(|seen| seen.counter == unit.number) && got.at <= at;
            self.got(is_video).any(is)
        };
        let missing: Vec<i64> = right.iter().filter(|unit| !has(unit)).map(|unit| unit.at).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let name = if is_video { "pictures" } else { "sounds" };
        Err(format!("{name} are late: {missing:?} of {}, joined at {} ms", right.len(), self.joined))
    }

    /// Checks that the viewer received as much audio as the publisher sent, from the audio's beginning on, also if
    /// it was transcoded.
    fn check_made_sound(&self) -> Result<(), String> {
        let from = self.begins(false).max(self.joined) + LATENESS_MS;
        let instant = |at: i64| self.began + ms(at.unsigned_abs());
        let ends = NEVER - LATENESS_MS;
        let heard = self.got(false).filter(|got| (instant(from)..instant(ends)).contains(&got.at));
        // A packet may have several frames.
        let count = heard.map(|got| got.opus_samples).sum::<u32>() / 960;
        let right = u32::try_from((ends - from) / 20).unwrap();
        // A transcoding job carries a few frames at a time, so the count may be off by a few.
        if count.abs_diff(right) <= 4 {
            return Ok(());
        }
        Err(format!("{count} frames of sound in place of {right}, joined at {} ms", self.joined))
    }
}

/// Checks the units that a WebRTC viewer receives of a publisher whose audio or video begins `late` milliseconds
/// late.
fn check(over: Over, is_video: bool, late: i64) -> Result<(), String> {
    let life = Life::of(over, Over::WebRtc, Sound::Opus, (is_video, late))?;
    life.check_kind(true)?;
    life.check_kind(false)
}

#[test]
fn viewers_get_sound_and_video_that_begin_behind_them() {
    let mut failed = Vec::new();
    for over in [Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc] {
        for (is_video, late) in
            [false, true].into_iter().flat_map(|kind| [500, 2_000, 5_000].map(|late| (kind, late)))
        {
            let name = if is_video { "video" } else { "sound" };
            if let Err(why) = check(over, is_video, late) {
                failed.push(format!("{name} {late} ms late over {over:?}: {why}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A stream that never has audio, or never has video, is played without waiting for it.
#[test]
fn viewers_do_not_wait_for_what_never_comes() {
    for over in [Over::Rtmp, Over::Srt] {
        for is_video in [false, true] {
            assert_eq!(check(over, is_video, NEVER), Ok(()), "{over:?}, without video: {is_video}");
        }
    }
}

/// AAC is transcoded to Opus for WebRTC viewers, also when the audio begins after they have joined.
#[test]
fn viewers_hear_aac_that_begins_behind_them() {
    let mut failed = Vec::new();
    for over in [Over::Rtmp, Over::Srt, Over::Rtsp] {
        for late in [0, 500, 2_000, 5_000] {
            let check = |life: Life| life.check_kind(true).and_then(|()| life.check_made_sound());
            let life = Life::of(over, Over::WebRtc, Sound::Aac, (false, late));
            if let Err(why) = life.and_then(check) {
                failed.push(format!("sound {late} ms late over {over:?}: {why}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// An RTSP description is made only once, so the server delays it for tracks that may still begin, but not for
/// long.
#[test]
fn viewers_over_rtsp_are_described_sound_and_video_that_begin_behind_them() {
    let mut failed = Vec::new();
    for over in [Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc] {
        for (is_video, late) in
            [false, true].into_iter().flat_map(|kind| [0, 500, 2_000, NEVER].map(|late| (kind, late)))
        {
            let check = |life: Life| {
                life.check_kind(true)?;
                life.check_kind(false)?;
                // After the wait for tracks, a viewer also waits for the next key frame.
                let within = late.min(4_000) + 1_500;
                if life.joined <= within { Ok(()) } else { Err(format!("joined at {} ms", life.joined)) }
            };
            // An RTSP publisher whose announced video never comes has no stream.
            if is_video && late == NEVER && over == Over::Rtsp {
                continue;
            }
            if let Err(why) = Life::of(over, Over::Rtsp, Sound::Opus, (is_video, late)).and_then(check) {
                let name = if is_video { "video" } else { "sound" };
                failed.push(format!("{name} {late} ms late over {over:?}: {why}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns the direction of the video section in the answer to a viewer's offer.
fn video_for_viewer(world: &mut World) -> String {
    let transport = format!(
        "c=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=recvonly\r\na=rtcp-mux\r\n\
         a=fingerprint:sha-256 {}\r\na=setup:actpass\r\n",
        ["AA"; 32].join(":")
    );
    let offer = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n{transport}a=mid:0\r\na=rtpmap:111 opus/48000/2\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF 96\r\n{transport}a=mid:1\r\na=rtpmap:96 VP8/90000\r\n"
    );
    let id = world.request_of(&format!("POST /live/whep/{STREAM}"), "application/sdp", &offer);
    world.run_until("the answer", secs(5), |world| world.answer(id).is_some());
    let answer = world.answer(id).unwrap();
    let (_, video) = answer.split_once("m=video").unwrap_or_else(|| panic!("{answer}"));
    let directions = ["a=sendonly", "a=inactive"].into_iter().filter(|line| video.contains(line));
    directions.collect()
}

/// A page that is given a video track waits for its first picture, so an audio-only stream must not promise one.
#[test]
fn viewers_of_a_stream_that_has_had_sound_alone_for_a_while_are_promised_no_video() {
    let publisher = Publisher {
        seconds: 30,
        faults: vec![Fault::Mute { of: Of::One(0), at: 0, ms: 30_000, stands: false }],
        ..units::clean()
    };
    let sent = units::units(&publisher, &mut units::source());
    let mut world = World::new(1, 1, &[]);
    let id = publish(&mut world, Over::Rtmp, Sound::Opus, true, &sent);
    world.run_until("the publisher", secs(5), |world| world.is_ready(id));
    world.run_for(secs(1));
    assert_eq!(video_for_viewer(&mut world), "a=sendonly");
    world.run_for(secs(15));
    assert_eq!(video_for_viewer(&mut world), "a=inactive");
}
