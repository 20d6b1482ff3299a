//! Counts the sends with segmentation offload that a picture and its audio take, and checks what the receiver gets from
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::Path;
use media::codec::{Codec, CodecConfig, h264, opus};
use netsim::{Clock, MediaSource, ms};
use rtp::NtpAnchor;
use sdp::{Description, Direction, Feedback, MediaKind};
use webrtc::{Event, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

use crate::harness::{CLIENT, client_config, server_config};

const VIDEO: SectionId = SectionId(0);
const AUDIO: SectionId = SectionId(1);
/// Payload type of the audio.
const OPUS: u8 = 111;
/// Length of a packet of audio.
const AUDIO_BYTES: usize = 330;

/// A server that plays to a client, without a network between them.
struct Play {
    now: Instant,
    server: Peer,
    client: Peer,
    video: Track,
    audio: Track,
    heard: u32,
    shown: u32,
    /// Frames that the client got.
    came: Vec<(SectionId, Bytes)>,
    /// Number of datagrams with padding: the unencrypted header announces it, and nothing else shows it.
    padded: usize,
    /// Payload type of the first packet that was sent since this field was last cleared.
    first: Option<u8>,
    /// If set, every second datagram with media is lost.
    loses: bool,
    media: u64,
}

impl Play {
    /// Connects both sides. The client's offer consists of the lines for which `keep` returns true.
    fn new(keep: impl Fn(&str) -> bool) -> Self {
        let now = Clock::new().now();
        let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let mut client = Peer::new(now, Arc::new(client_config()), anchor, Seed::from_number(1)).unwrap();
        let mut server = Peer::new(now, Arc::new(server_config()), anchor, Seed::from_number(2)).unwrap();
        client.add_local(now, CLIENT).unwrap();
        let preference = |direction, codec, first| {
            let mut formats = offered_formats(codec, first);
            if codec == Codec::Opus {
                // Like a browser, the client does not request lost audio packets.
                formats.iter_mut().for_each(|format| format.feedback.retain(|of| *of != Feedback::Nack));
            }
            MediaPreference { direction, formats, msid: None }
        };
        let video = |direction| preference(direction, Codec::H264, 96);
        let audio = |direction| preference(direction, Codec::Opus, OPUS);
        let sections =
            [(MediaKind::Video, video(Direction::RecvOnly)), (MediaKind::Audio, audio(Direction::RecvOnly))];
        let offer = client.offer(&sections).unwrap().write();
        let kept: String = offer.split_inclusive("\r\n").filter(|line| keep(line.trim_end())).collect();
        let give = |media: &sdp::Media| match media.kind {
            MediaKind::Video => Some(video(Direction::SendOnly)),
            _ => Some(audio(Direction::SendOnly)),
        };
        let offer = Description::read(kept.as_bytes()).unwrap();
        let answer = server.handle_offer(now, &offer, |_, media| give(media)).unwrap().write();
        client.handle_answer(now, &Description::read(answer.as_bytes()).unwrap()).unwrap();
        let payload_bytes = Peer::payload_bytes_max(&server_config());
        let mut play = Self {
            now,
            server,
            client,
            video: Track::new(Codec::H264, payload_bytes).unwrap(),
            audio: Track::new(Codec::Opus, payload_bytes).unwrap().join_audio(),
            heard: 0,
            shown: 0,
            came: Vec::new(),
            padded: 0,
            first: None,
            loses: false,
            media: 0,
        };
        for _ in 0..20 {
            play.deliver();
        }
        play.came.clear();
        play
    }

    /// Delivers the datagrams of both sides. Returns the sends of the server that contain no reports.
    fn deliver(&mut self) -> usize {
        let mut sends = 0;
        let mut out = Datagrams::new();
        let log = |section| Some(if section == VIDEO { self.video.log() } else { self.audio.log() });
        while let Some(path) = self.server.poll_transmit(self.now, log, &mut out) {
            // RTP, but not RTCP (RFC 7983 §7, RFC 5761 §4).
            let is_media = |bytes: &[u8]| (128..192).contains(&bytes[0]) && !(192..224).contains(&bytes[1]);
            let mut from = 0;
            while let Some(run) = out.run(from, 64) {
                (from, sends) = (run.next, sends + usize::from(is_media(run.bytes)));
            }
            self.padded += out.iter().filter(|bytes| is_media(bytes) && bytes[0] & 0x20 != 0).count();
            let back = Path::udp(path.remote, path.local);
            self.first = self.first.or_else(|| Some(out.iter().find(|bytes| is_media(bytes))?[1] & 0x7f));
            for bytes in out.iter() {
                self.media += u64::from(is_media(bytes));
                if !self.loses || !is_media(bytes) || self.media.is_multiple_of(2) {
                    self.client.handle_datagram(self.now, back, &mut bytes.to_vec());
                }
            }
            out.clear();
        }
        while let Some(path) = self.client.poll_transmit(self.now, |_| None, &mut out) {
            let back = Path::udp(path.remote, path.local);
            out.iter().for_each(|bytes| self.server.handle_datagram(self.now, back, &mut bytes.to_vec()));
            out.clear();
        }
        for peer in [&mut self.server, &mut self.client] {
            peer.handle_timeout(self.now);
            while let Some(event) = peer.poll_event() {
                if let Event::Frame { section, frame, .. } = event {
                    self.came.push((section, frame.payload));
                }
            }
        }
        sends
    }

    /// Lets a time pass in which the client is silent, and the server has no tracks if `has_tracks` is false. Checks that
    /// no deadline is in the past once it was handled and the server was drained.
    fn wait(&mut self, time: Duration, has_tracks: bool) {
        let end = self.now + time;
        let mut out = Datagrams::new();
        while self.now < end {
            self.now += ms(1);
            self.server.handle_timeout(self.now);
            let log = |section| {
                let track = if section == VIDEO { &self.video } else { &self.audio };
                has_tracks.then(|| track.log())
            };
            while self.server.poll_transmit(self.now, log, &mut out).is_some() {
                out.clear();
            }
            let next = self.server.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "{next:?} at {:?}", self.now);
        }
    }

    /// Sends a picture in slices of these lengths, with this number of audio packets. Returns the sends.
    fn picture(&mut self, slices: &[usize], sounds: u8) -> usize {
        self.now += ms(33);
        let opus = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
        for n in 0..sounds {
            // 20 ms in stereo (RFC 6716 §3.1); the second one is longer.
            let packet = [&[0xfc][..], &vec![n; AUDIO_BYTES - 1 + usize::from(n)]].concat();
            let unit = self.audio.push(self.now, &opus, false, self.heard, &packet).unwrap();
            self.heard += 960;
            assert!(self.server.send(AUDIO, &unit, self.now));
        }
        let config = CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap());
        let mut unit = Vec::new();
        for (n, &length) in (0u8..).zip(slices) {
            unit.extend(u32::try_from(length).unwrap().to_be_bytes());
            // The first macroblock of a slice tells whether it begins a picture.
            unit.extend([if self.shown == 0 { 0x65 } else { 0x41 }, if n == 0 { 0x80 } else { 0x40 }]);
            unit.extend(vec![n; length - 2]);
        }
        let unit = self.video.push(self.now, &config, self.shown == 0, self.shown, &unit).unwrap();
        self.shown += 3000;
        assert!(self.server.send(VIDEO, &unit, self.now));
        self.deliver()
    }

    /// Plays for two seconds, because the first packets carry additional fields.
    fn settle(&mut self) {
        for _ in 0..70 {
            self.picture(&[3_001], 1);
        }
        (self.padded, self.came) = (0, Vec::new());
    }

    /// Plays ten equal pictures, and returns the smallest number of sends that one took. Once per
    /// second, a picture carries its capture time, and may take more.
    fn sends(&mut self, slices: &[usize], sounds: u8) -> usize {
        (0..10).map(|_| self.picture(slices, sounds)).min().unwrap()
    }
}

/// The table of docs/benchmarks.md.
#[test]
fn a_picture_and_its_audio_take_few_sends() {
    let mut play = Play::new(|_| true);
    play.settle();
    for (slices, sounds, wanted) in [
        (&[9_001][..], 0, 1),
        (&[9_001], 1, 1),
        (&[9_003], 1, 1),
        // Audio packets that wait together are joined into one packet.
        (&[9_003], 2, 1),
        (&[2_250, 2_260, 2_240, 2_270], 1, 1),
        (&[2_000, 2_500, 3_000, 1_700], 2, 3),
        // A picture that is shorter than the audio is sent after the audio.
        (&[200], 1, 1),
        (&[200], 2, 1),
    ] {
        assert_eq!(play.sends(slices, sounds), wanted, "{slices:?}, {sounds}");
    }
    assert!(play.padded > 0);
}

#[test]
fn what_is_padded_and_joined_comes_as_it_was() {
    let mut play = Play::new(|_| true);
    play.settle();
    let slices = [2_250, 2_260, 2_240, 2_273];
    (0..10).for_each(|_| assert!(play.picture(&slices, 2) > 0));
    assert!(play.padded >= 20, "{}", play.padded);
    let of = |section| play.came.iter().filter(move |(of, _)| *of == section).map(|(_, payload)| payload);
    assert_eq!(of(VIDEO).count(), 10);
    assert!(of(VIDEO).all(|payload| payload.len() == slices.iter().sum::<usize>() + 16));
    // One packet with both frames, and the length of the first.
    let joined = [&[0xfe, 252 + 1, 19][..], &[0; AUDIO_BYTES - 1], &[1; AUDIO_BYTES]].concat();
    assert_eq!(of(AUDIO).count(), 10);
    assert!(of(AUDIO).all(|payload| *payload == joined));
}

/// A peer without RTX may not remove padding, so it is sent none.
#[test]
fn peers_without_rtx_are_sent_no_padding() {
    let mut play = Play::new(|line| !line.contains("rtx") && !line.contains("apt="));
    play.settle();
    assert_eq!(play.sends(&[9_003], 1), 2);
    assert_eq!(play.padded, 0);
    assert!(play.came.iter().any(|(section, payload)| *section == VIDEO && payload.len() == 9_007));
}

/// Audio does not wait for video that has to wait itself.
#[test]
fn audio_goes_before_a_backlog() {
    let mut play = Play::new(|_| true);
    play.settle();
    play.first = None;
    play.picture(&[400_000], 1);
    assert_eq!(play.first, Some(OPUS), "the payload type of the first packet");
}

/// A viewer may stop its video while second copies of retransmissions are due: an expired deadline that remains would
/// make the owner spin.
#[test]
fn no_deadline_stays_in_the_past_with_tracks_or_without() {
    for has_tracks in [true, false] {
        // Without feedback about arrivals and rates, all reported losses count, and nothing is paced.
        let mut play = Play::new(|line| !line.contains("transport") && !line.contains("remb"));
        play.loses = true;
        for time in (0..200).map(|n| n % 40) {
            play.picture(&[9_001], 1);
            play.wait(ms(time), has_tracks);
        }
        let resent: u64 = play.server.stats().resent.iter().map(|(_, resent)| resent.resent).sum();
        let stats = play.server.stats();
        assert!(stats.loss >= 150 && resent > 100, "{resent} of {stats:?}");
    }
}
