//! Cost of a viewer: a track of 2.5 Mb/s and 30 frames per second, sent to 1000, 100 and 1 connected peers in memory.
//!
//! ```text
//! cargo bench -p millstream-webrtc --bench fanout
//! ```
//!
//! `peer` is the total cost of sending a packet to a viewer, up to the datagram ([`Peer::send`] and
//! [`Peer::poll_transmit`]). `seal` is the cost of SRTP alone, for the same payloads and each viewer's keys.
//! The two measurements alternate, so that a busy machine affects both; the values are medians over the frames,
//! in nanoseconds per packet. `cut` is the cost of packetizing, incurred once for all viewers. `held` is the
//! memory that a peer reports, and `resident` the growth of the process per viewer, first after connecting and
//! then after receiving data. `resident` is meaningful only in the first line, because later runs reuse memory.
//!
//! Then follow streams like those of real encoders: slices of unlike sizes, with audio that waits for the next picture.
//! `sends` is the number of calls that send a picture with its audio to one viewer with segmentation offload. With
//! `cargo bench ... -- count`, only this part runs, for 100 viewers, so that callgrind can count the instructions for a
//! packet.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a bench has a clock, prints, and stops at what it did not expect"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use dtls::{Identity, SrtpProfile};
use ice::Path;
use media::codec::{Codec, CodecConfig, h264, opus};
use netsim::MediaSource;
use rtp::{Header, NtpAnchor, PayloadType, SequenceNumber, Ssrc};
use sdp::{Description, Direction, Feedback, MediaKind};
use srtp::{MasterKey, Outbound, Profile};
use webrtc::{Config, Event, IceMode, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

const VIDEO: SectionId = SectionId(0);
const AUDIO: SectionId = SectionId(1);
/// Mean size of a frame in bytes, for 2.5 Mb/s at 30 frames per second. Every 30th frame is eight times as
/// large as the others.
const PICTURE_BYTES: usize = 2_500_000 / 8 / (29 + 8);
const FRAMES: u64 = 240;
/// Number of pictures in a measured stream. Few, because the clients send no feedback, and feedback counts as overdue
/// after some seconds.
const PICTURES: u64 = 75;

fn main() {
    if std::env::args().any(|argument| argument == "count") {
        return shaped(100);
    }
    measured();
    shaped(10);
}

/// Measures streams like those of real encoders.
fn shaped(viewers: u64) {
    println!("| slices | audio | viewers | sends a picture | packets | bytes |\n|---|---|---|---|---|---|");
    for (slices, audio) in [(1, false), (1, true), (4, false), (4, true), (8, true)] {
        shape(viewers, slices, audio);
    }
}

/// Divides a picture of one slice into slices of unlike sizes, as x264 with `sliced-threads` makes them.
fn sliced(unit: &[u8], slices: usize, random: &mut crypto::Random) -> Vec<u8> {
    let (head, body) = unit[4..].split_first().unwrap();
    let weights: Vec<usize> = (0..slices).map(|_| 70 + (random.u64() % 60) as usize).collect();
    let total: usize = weights.iter().sum();
    let (mut out, mut from, mut sum) = (Vec::new(), 0, 0);
    for weight in weights {
        sum += weight;
        let piece = &body[from..body.len() * sum / total];
        from += piece.len();
        out.extend(u32::try_from(piece.len() + 1).unwrap().to_be_bytes());
        out.push(*head);
        out.extend_from_slice(piece);
    }
    out
}

fn shape(viewers: u64, slices: usize, audio: bool) {
    let start = Instant::now();
    let (server, client) = configs(SrtpProfile::AeadAes128Gcm);
    let mut peers: Vec<_> = (0..viewers).map(|n| connect_both(start, n, &server, &client)).collect();
    let mut media = MediaSource::new(&Seed::from_number(7)).gop(60).sizes(PICTURE_BYTES, 0);
    let mut random = Seed::from_number(3).random();
    let config = CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap());
    let sound = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    let payload_bytes = Peer::payload_bytes_max(&server);
    let mut track = Track::new(Codec::H264, payload_bytes).unwrap();
    let mut audio_track = Track::new(Codec::Opus, payload_bytes).unwrap().join_audio();
    let (mut sends, mut packets, mut bytes) = (0u64, 0u64, 0u64);
    let mut out = Datagrams::new();
    for n in 0..PICTURES {
        let Some(unit) = media.by_ref().find(|unit| unit.is_video) else { return };
        let now = start + Duration::from_millis(unit.dts_ms);
        let payload = sliced(&unit.payload, slices, &mut random);
        let picture = track.push(now, &config, unit.key_frame, (unit.dts_ms * 90) as u32, &payload).unwrap();
        let due = (n * 50 / 30..(n + 1) * 50 / 30).filter(|_| audio);
        let sounds: Vec<_> = due
            .map(|n| {
                // A packet of 20 ms in stereo (RFC 6716 §3.1), of 128 kb/s with a variable rate.
                let packet = [&[0xfc][..], &vec![7; 300 + (random.u64() % 40) as usize]].concat();
                audio_track.push(now, &sound, false, (n * 960) as u32, &packet).unwrap()
            })
            .collect();
        for (peer, client) in &mut peers {
            for unit in &sounds {
                assert!(peer.send(AUDIO, unit, now));
            }
            assert!(peer.send(VIDEO, &picture, now));
            let log = |section| Some(if section == VIDEO { track.log() } else { audio_track.log() });
            while let Some(path) = peer.poll_transmit(now, log, &mut out) {
                let is_media = |n: usize| !(192..224).contains(&out.get(n)[1]);
                // Skips the first second, whose packets also carry the mid and other initial fields, and skips
                // datagrams with reports.
                if n >= 30 && (0..out.len()).all(is_media) {
                    let mut from = 0;
                    while let Some(run) = out.run(from, 64) {
                        (from, sends) = (run.next, sends + 1);
                    }
                    (packets, bytes) = (packets + out.len() as u64, bytes + out.bytes() as u64);
                }
                let back = Path::udp(path.remote, path.local);
                (0..out.len()).for_each(|n| client.handle_datagram(now, back, &mut out.get(n).to_vec()));
                out.clear();
            }
            carry(now, client, peer);
            for peer in [peer, client] {
                peer.handle_timeout(now);
                while let Some(event) = peer.poll_event() {
                    black_box(event);
                }
            }
        }
    }
    let per = |of: u64| of as f64 / viewers as f64 / (PICTURES - 30) as f64;
    println!(
        "| {slices} | {} | {viewers} | {:.2} | {:.2} | {:.0} |",
        if audio { "50 packets a second" } else { "none" },
        per(sends),
        per(packets),
        per(bytes),
    );
}

fn measured() {
    for (dtls, srtp) in [
        (SrtpProfile::AeadAes128Gcm, Profile::AeadAes128Gcm),
        (SrtpProfile::Aes128CmSha1_80, Profile::Aes128CmHmacSha1_80),
    ] {
        for viewers in [1000, 100, 1] {
            run(viewers, dtls, srtp);
        }
    }
}

fn run(viewers: u64, dtls: SrtpProfile, profile: Profile) {
    let start = Instant::now();
    let (server, client) = configs(dtls);
    let before = resident();
    let mut peers: Vec<Peer> = (0..viewers).map(|n| connect(start, n, &server, &client)).collect();
    let connected = resident();
    let mut media = MediaSource::new(&Seed::from_number(7)).gop(30).sizes(PICTURE_BYTES, 0);
    let config = CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap());
    let payload_bytes = Peer::payload_bytes_max(&server);
    let mut track = Track::new(Codec::H264, payload_bytes).unwrap();
    let (master, _) = MasterKey::of_dtls(profile, &vec![9; profile.keying_bytes()]).unwrap();
    let mut bare: Vec<Outbound> = peers.iter().map(|_| Outbound::new(&master).unwrap()).collect();
    let (mut cut, mut ours, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let (mut number, mut sent, mut bytes) = (0u16, 0, 0);
    let mut out = Datagrams::new();
    for n in 0..FRAMES {
        let unit = media.next_unit();
        // Uses the time of the media, so that packets kept for a second are dropped after a second of media.
        let now = start + Duration::from_millis(unit.dts_ms);
        let timestamp = (unit.dts_ms * 90) as u32;
        let began = Instant::now();
        let first_id = track.log().next_id();
        let sent_unit = track.push(now, &config, unit.key_frame, timestamp, &unit.payload).unwrap();
        let end_id = track.log().next_id();
        let count = first_id.distance(end_id);
        cut.push(per(began, count));

        let (began, before) = (Instant::now(), sent);
        for peer in &mut peers {
            assert!(peer.send(VIDEO, &sent_unit, now));
            while peer.poll_transmit(now, |_| Some(track.log()), &mut out).is_some() {
                (sent, bytes) = (sent + out.len(), bytes + out.bytes());
                out.clear();
            }
        }
        // Some packets of a large frame leave with the next frame, because they are paced.
        let took = per(began, (sent - before) as u64);

        let began = Instant::now();
        let first = number;
        for keys in &mut bare {
            let mut id = first_id;
            number = first;
            while id != end_id {
                let packet = track.log().get(id).unwrap();
                let header = header(number, timestamp, packet.marker);
                keys.seal(&header, &packet.payload, &mut out).unwrap();
                (number, id) = (number.wrapping_add(1), id.next());
                if !out.has_room(1500) {
                    out.clear();
                }
            }
            out.clear();
        }
        black_box(&out);
        let took_alone = per(began, count * viewers);
        // The first second warms caches and the peers' tables.
        if n >= 30 {
            ours.push(took);
            alone.push(took_alone);
        }
    }
    let held: usize = peers.iter().map(Peer::held_bytes).sum();
    let rate = bytes as f64 * 8.0 / viewers as f64 / (FRAMES as f64 / 30.0) / 1e6;
    let (peer, seal) = (median(&mut ours), median(&mut alone));
    println!(
        "{profile:?} {viewers:4} viewers: peer {peer:4.0} ns, seal {seal:4.0} ns, ratio {:.2}; cut {:3.0} ns; {rate:.1} Mb/s, \
         {} packets each; held {} bytes, resident {} + {} bytes",
        peer / seal,
        median(&mut cut),
        sent / viewers as usize,
        held / viewers as usize,
        connected.saturating_sub(before) / viewers,
        resident().saturating_sub(connected) / viewers,
    );
}

fn per(began: Instant, count: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Resident memory of the process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn header(number: u16, timestamp: u32, marker: bool) -> Header<'static> {
    Header {
        marker,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(number),
        timestamp,
        ssrc: Ssrc(9),
        csrcs: rtp::Csrcs::default(),
        extension: None,
    }
}

/// Makes the configurations of a server and a client.
fn configs(profile: SrtpProfile) -> (Arc<Config>, Arc<Config>) {
    let config = |ice: IceMode, identity: u64| {
        let identity = Arc::new(Identity::self_signed(&Seed::from_number(identity)).unwrap());
        let mut config = Config::new(ice, identity);
        let dtls = dtls::Config { srtp_profiles: vec![profile], ..(*config.dtls).clone() };
        config.dtls = Arc::new(dtls);
        Arc::new(config)
    };
    let addresses = vec!["192.0.2.1:8000".parse().unwrap()];
    (config(IceMode::Lite { config: Arc::default(), addresses }, 1), config(IceMode::Full(Arc::default()), 2))
}

/// Connects a video session and returns the server's peer.
fn connect(now: Instant, n: u64, server: &Arc<Config>, client: &Arc<Config>) -> Peer {
    connect_sections(now, n, &[(MediaKind::Video, Codec::H264)], server, client).0
}

/// Connects a session of video and audio, and returns both peers.
fn connect_both(now: Instant, n: u64, server: &Arc<Config>, client: &Arc<Config>) -> (Peer, Peer) {
    let sections = [(MediaKind::Video, Codec::H264), (MediaKind::Audio, Codec::Opus)];
    connect_sections(now, n, &sections, server, client)
}

fn connect_sections(
    now: Instant,
    n: u64,
    sections: &[(MediaKind, Codec)],
    server: &Arc<Config>,
    client: &Arc<Config>,
) -> (Peer, Peer) {
    let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
    let mut client =
        Peer::new(now, Arc::clone(client), anchor, Seed::from_number(n).derive("client", 0)).unwrap();
    let mut server =
        Peer::new(now, Arc::clone(server), anchor, Seed::from_number(n).derive("server", 0)).unwrap();
    client.add_local(now, "203.0.113.7:5000".parse().unwrap()).unwrap();
    let first = |codec| if codec == Codec::Opus { 111 } else { 96 };
    let preference = |direction, codec| MediaPreference {
        direction,
        formats: offered_formats(codec, first(codec)),
        msid: None,
    };
    // Like a browser, the client does not request lost audio packets.
    let like_browsers = |mut of: MediaPreference, codec| {
        let asks = |feedback: &Feedback| codec != Codec::Opus || *feedback != Feedback::Nack;
        of.formats.iter_mut().for_each(|format| format.feedback.retain(asks));
        of
    };
    let offered: Vec<_> = sections
        .iter()
        .map(|(kind, codec)| (kind.clone(), like_browsers(preference(Direction::RecvOnly, *codec), *codec)))
        .collect();
    let offer = client.offer(&offered).unwrap().write();
    let offer = Description::read(offer.as_bytes()).unwrap();
    let codec_of =
        |media: &sdp::Media| sections.iter().find(|(kind, _)| *kind == media.kind).map(|(_, codec)| *codec);
    let accept = |media: &sdp::Media| Some(preference(Direction::SendOnly, codec_of(media)?));
    let answer = server.handle_offer(now, &offer, |_, media| accept(media)).unwrap().write();
    client.handle_answer(now, &Description::read(answer.as_bytes()).unwrap()).unwrap();
    let mut connected = 0;
    while connected < 2 {
        carry(now, &mut client, &mut server);
        carry(now, &mut server, &mut client);
        for peer in [&mut client, &mut server] {
            while let Some(event) = peer.poll_event() {
                connected += usize::from(event == Event::Connected);
            }
        }
    }
    (server, client)
}

fn carry(now: Instant, from: &mut Peer, to: &mut Peer) {
    let mut out = Datagrams::new();
    while let Some(path) = from.poll_transmit(now, |_| None, &mut out) {
        let path = Path::udp(path.remote, path.local);
        (0..out.len()).for_each(|n| to.handle_datagram(now, path, &mut out.get(n).to_vec()));
        out.clear();
    }
}
