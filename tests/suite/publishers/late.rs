//! Viewers over WebRTC who come before the publisher's first sound, or its first picture. There is no second negotiation, and
//! they must get it nevertheless.

use netsim::publisher::{Fault, Of, Publisher};
use netsim::{ms, secs};

use super::units::Unit;
use super::{STREAM, rtmp, rtsp, sender, ts, units, whip};
use crate::support::World;
use crate::support::world::{Got, Id, Over, url};

/// A viewer comes when the publisher has been live for so long.
const JOIN_MS: u64 = 300;
/// From a unit's sampling until a viewer has it, at most.
const LATENESS_MS: i64 = 500;
/// The length of the media.
const SECONDS: i64 = 10;
/// No unit of the kind comes.
const NEVER: i64 = SECONDS * 1000;

/// The first byte of a packet of Opus that has 20 ms of stereo in one frame (RFC 6716 §3.1).
fn opus(unit: &Unit) -> Vec<u8> {
    [&[whip::TOC], &unit.payload[1..]].concat()
}

/// A publisher of H.264 and Opus, one of which comes from `from` on only, and is not announced before where the protocol has
/// it so.
fn publish(world: &mut World, over: Over, is_video: bool, sent: &[Unit]) -> Id {
    let (now, seed) = (world.instant(), world.client_seed());
    let from = sent.iter().find(|unit| unit.is_video == is_video).map_or(NEVER, |unit| unit.at);
    match over {
        Over::Rtmp => world.publish_by(over, Box::new(over_rtmp(is_video, sent, from).into_sender())),
        Over::Srt => {
            let stream_id = format!("#!::r=live/{STREAM},m=publish");
            let pieces = over_srt(is_video, sent, from).into_pieces();
            world.publish_by(over, Box::new(sender::SrtSender::new(now, &seed, &stream_id, pieces)))
        }
        Over::Rtsp => world.publish_by(over, Box::new(over_rtsp(sent).into_sender(STREAM))),
        _ => {
            let url = url(over, "live", STREAM, "publish");
            world.publish_by(over, Box::new(whip::WhipSender::new(now, &url, seed, sent)))
        }
    }
}

fn over_rtmp(is_video: bool, sent: &[Unit], from: i64) -> rtmp::Plan {
    let mut plan = rtmp::Plan::new(STREAM, sent);
    plan.messages.retain(|message| message.kind != rtmp::DATA);
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    for (n, message) in plan.of_kind(rtmp::AUDIO).enumerate() {
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

fn over_srt(is_video: bool, sent: &[Unit], from: i64) -> ts::Plan {
    let mut plan = ts::Plan::new(sent);
    // A registration, and the extension for two channels.
    let sound = (6, ts::SOUND, b"\x05\x04Opus\x7f\x02\x80\x02".to_vec());
    let video = (ts::H264, ts::VIDEO, Vec::new());
    let early = if is_video { sound.clone() } else { video.clone() };
    let of = |from, version, streams: Vec<(u8, u16, Vec<u8>)>| {
        let pcr = streams[0].1;
        ts::Tables { from, version, pcr, streams, ..ts::Tables::default() }
    };
    plan.tables = vec![of(0, 0, vec![early]), of(from, 1, vec![video, sound])];
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    for pes in plan.of_pid(ts::SOUND) {
        let packet = opus(sounds.next().unwrap());
        let length = [vec![255; packet.len() / 255], vec![(packet.len() % 255) as u8]].concat();
        (pes.stream_id, pes.payload) = (0xbd, [&[0x7f, 0xe0][..], &length, &packet].concat());
    }
    plan
}

fn over_rtsp(sent: &[Unit]) -> rtsp::Plan {
    let mut plan = rtsp::Plan::new(&units::clean(), sent);
    let (head, _) = plan.sdp.split_once("m=audio").unwrap();
    let head: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with("a=fmtp")).collect();
    plan.sdp = format!(
        "{}m=audio 0 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\na=control:trackID=1\r\n",
        head.join("\r\n")
    );
    let mut sounds = sent.iter().filter(|unit| !unit.is_video);
    plan.of_section(1).for_each(|packet| packet.payload = opus(sounds.next().unwrap()));
    // Parameter sets come with the key frames alone.
    plan.expand(|packet| {
        let is_key = packet.section == 0
            && match packet.payload[0] & 0x1f {
                5 => true,
                // The beginning of one.
                28 => packet.payload[1] & 0x9f == 0x85,
                _ => false,
            };
        let sets =
            units::sets().map(|set| rtsp::Packet { payload: set.to_vec(), marker: false, ..packet.clone() });
        sets.into_iter().filter(|_| is_key).chain([packet]).collect()
    });
    plan
}

/// Checks the units of a viewer of a publisher whose sound, or video, begins so late.
fn check(over: Over, is_video: bool, late: i64) -> Result<(), String> {
    let mut publisher = units::clean();
    publisher.seconds = SECONDS;
    let of = Of::One(usize::from(!is_video));
    publisher.faults = vec![Fault::Mute { of, at: 0, ms: late, stands: false }];
    let mut source = units::source().gop(25);
    let mut sent = units::units(&publisher, &mut source);
    let key = sent.iter().find(|unit| unit.is_video && unit.key).map_or(0, |unit| unit.at);
    sent.retain(|unit| !unit.is_video || unit.at >= key);
    let mut world = World::new(1, 1, &[]);
    let id = publish(&mut world, over, is_video, &sent);
    world.run_until("the publisher", secs(5), |world| world.is_ready(id));
    let began = world.story(id).ready.unwrap();
    world.run_for((began + ms(JOIN_MS)).saturating_duration_since(world.instant()));
    let viewer = world.watch_over(Over::WebRtc, "live", STREAM);
    let end = began + secs(SECONDS.unsigned_abs() + 1);
    world.run_for(end.saturating_duration_since(world.instant()));
    if !world.is_ready(viewer) {
        return Err(format!("{:?}", world.rejection(viewer)));
    }
    let joined = world.story(viewer).ready.unwrap().saturating_duration_since(began).as_millis();
    let joined = i64::try_from(joined).unwrap();
    for kind in [true, false] {
        let got: Vec<&Got> = world.got(viewer).iter().filter(|unit| unit.is_video == kind).collect();
        let begins = sent.iter().find(|unit| unit.is_video == kind).map_or(NEVER, |unit| unit.at);
        let right: Vec<&Unit> = sent
            .iter()
            .filter(|unit| unit.is_video == kind && unit.at >= begins.max(joined + LATENESS_MS))
            .filter(|unit| unit.at < NEVER - LATENESS_MS)
            .collect();
        let has = |unit: &&&Unit| {
            let at = began + ms((unit.at + LATENESS_MS).unsigned_abs());
            got.iter().any(|got| got.seen.is_ok_and(|seen| seen.counter == unit.number) && got.at <= at)
        };
        let missing: Vec<i64> = right.iter().filter(|unit| !has(unit)).map(|unit| unit.at).collect();
        if !missing.is_empty() {
            let name = if kind { "pictures" } else { "sounds" };
            return Err(format!("{name} are late: {missing:?} of {}, joined at {joined} ms", right.len()));
        }
    }
    Ok(())
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

/// A stream that never has sound, or pictures, is shown at once.
#[test]
fn viewers_do_not_wait_for_what_never_comes() {
    for over in [Over::Rtmp, Over::Srt] {
        for is_video in [false, true] {
            assert_eq!(check(over, is_video, NEVER), Ok(()), "{over:?}, without video: {is_video}");
        }
    }
}

/// The direction of video in the answer to a viewer.
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

/// A page that has a track of video waits for its first picture.
#[test]
fn viewers_of_a_stream_that_has_had_sound_alone_for_a_while_are_promised_no_video() {
    let publisher = Publisher {
        seconds: 30,
        faults: vec![Fault::Mute { of: Of::One(0), at: 0, ms: 30_000, stands: false }],
        ..units::clean()
    };
    let sent = units::units(&publisher, &mut units::source());
    let mut world = World::new(1, 1, &[]);
    let id = publish(&mut world, Over::Rtmp, true, &sent);
    world.run_until("the publisher", secs(5), |world| world.is_ready(id));
    world.run_for(secs(1));
    assert_eq!(video_for_viewer(&mut world), "a=sendonly");
    world.run_for(secs(15));
    assert_eq!(video_for_viewer(&mut world), "a=inactive");
}
