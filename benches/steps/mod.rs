//! The hot steps as workloads, shared by the benches that measure time and those that count instructions.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crypto::Seed;
use flv::VideoTag;
use flv::file::{TagHead, TagKind};
use flv::tag::{FrameType, VideoPacket};
use media::codec::{aac, h264};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};
use millstream::hub::{Cursor, Entry, Packager, Ring, RingLimits};
use millstream::protocol::Format;
use netsim::{MediaSource, SyntheticUnit};
use rtmp::chunk::{Limits, MessageHead, Reader, write_message};
use rtmp::{Config, MediaKind};
use rtp::Ssrc;
use rtp::bandwidth::BandwidthEstimator;
use rtp::rtcp::{Compound, Rtcp, packets};
use rtp::transport_cc::ArrivalRecorder;
use wire::Gather;

/// Number of media units in a second.
pub const FRAMES: usize = 77;
/// Maximum bytes of a read from a socket.
const READ_BYTES: usize = 64 * 1024;

pub fn second_of_media() -> Vec<SyntheticUnit> {
    MediaSource::new(&Seed::from_number(1)).sizes(8850, 340).take(FRAMES).collect()
}

pub fn tracks() -> Arc<Tracks> {
    let video = h264::Config::read(MediaSource::video_config()).ok().map(CodecConfig::H264);
    let audio = aac::Config::read(MediaSource::audio_config()).ok().map(CodecConfig::Aac);
    let track = |id, config: Option<CodecConfig>| {
        config.map(|config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) })
    };
    let both = [track(TrackId::VIDEO, video), track(TrackId::AUDIO, audio)];
    Arc::new(Tracks::new(1, both.into_iter().flatten()))
}

/// RTMP on message stream 1, for players of the legacy codecs.
pub fn rtmp() -> Format {
    #[allow(clippy::expect_used, reason = "a bench of RTMP needs it")]
    Format::find("rtmp", 1).expect("RTMP is registered")
}

pub fn entry(unit: &SyntheticUnit, tracks: &Arc<Tracks>) -> Entry {
    let dts = i64::try_from(unit.dts_ms).unwrap_or(0);
    let unit = AccessUnit {
        track: if unit.is_video { TrackId::VIDEO } else { TrackId::AUDIO },
        dts,
        pts: dts,
        key_frame: unit.is_video && unit.key_frame,
        config_epoch: 1,
        payload: unit.payload.clone(),
    };
    Entry::new(Instant::now(), 0, unit, Arc::clone(tracks))
}

/// Returns the media of a second as RTMP chunks of this size.
pub fn chunked(media: &[SyntheticUnit], chunk_size: usize) -> Vec<u8> {
    let (mut scratch, mut parts) = (BytesMut::new(), Vec::new());
    for unit in media {
        let kind = if unit.is_video { MediaKind::Video } else { MediaKind::Audio };
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            timestamp: u32::try_from(unit.dts_ms).unwrap_or(0),
            kind: kind.message_type(),
            message_stream: 1,
        };
        let prefix = VideoTag::write_header(FrameType::Inter, VideoPacket::Frame, 0);
        write_message(&mut scratch, &head, &prefix, &unit.payload, chunk_size, &mut parts);
    }
    parts.iter().flat_map(|part: &Bytes| part.to_vec()).collect()
}

/// Returns the media of a second as an FLV file.
pub fn flv_file(media: &[SyntheticUnit]) -> Vec<u8> {
    let mut file = flv::file::Header { audio: true, video: true }.write().to_vec();
    for unit in media {
        let kind = if unit.is_video { TagKind::Video } else { TagKind::Audio };
        let size = u32::try_from(unit.payload.len()).unwrap_or(0);
        let head = TagHead { kind, size, timestamp: u32::try_from(unit.dts_ms).unwrap_or(0) };
        file.extend(head.write());
        file.extend_from_slice(&unit.payload);
        file.extend(head.trailer());
    }
    file
}

/// Makes a reader that knows the publisher's chunk size, and is granted a publish.
pub fn chunk_reader(chunk_size: usize) -> Reader {
    let mut reader = Reader::new(Limits::from(&Config::default()));
    let _ = reader.set_chunk_size(u32::try_from(chunk_size).unwrap_or(128));
    reader.grant(true);
    reader
}

/// Reads messages from bytes that arrive in reads of [`READ_BYTES`]. Returns the number of messages.
pub fn read_messages(reader: &mut Reader, bytes: &[u8]) -> usize {
    let mut messages = 0;
    for read in bytes.chunks(READ_BYTES) {
        let mut input = read;
        while let Ok(Some(message)) = reader.read(&mut input) {
            messages += 1;
            black_box(message);
        }
    }
    messages
}

/// Reads the tags of an FLV file. Returns their number.
pub fn read_tags(file: &[u8]) -> usize {
    let mut reader = flv::file::Reader::new(1 << 20);
    let mut tags = 0;
    for read in file.chunks(READ_BYTES) {
        reader.push(read);
        while let Ok(Some(tag)) = reader.poll_tag() {
            tags += 1;
            black_box(tag);
        }
    }
    tags
}

/// A stream with its viewers.
pub struct FanOut {
    ring: Ring,
    packager: Packager,
    cursors: Vec<Cursor>,
    tracks: Arc<Tracks>,
}

impl FanOut {
    pub fn new(format: Format, viewers: usize) -> Self {
        let ring = Ring::new(RingLimits::with_lag_ms(5000));
        let tracks = tracks();
        let packager = Packager::new(format.key(), format.package(), &tracks, 0);
        let cursors = (0..viewers).map(|_| Cursor::new(&ring, packager.chosen())).collect();
        Self { ring, packager, cursors, tracks }
    }

    /// Sends a unit to all viewers: appends it to the ring, packages it, gathers it and accounts for it once per
    /// viewer.
    pub fn pass(&mut self, unit: &SyntheticUnit) {
        let entry = entry(unit, &self.tracks);
        self.packager.push(&entry);
        self.ring.push(entry);
        let head = self.ring.head();
        for cursor in &mut self.cursors {
            cursor.skip_undecodable(&self.ring, self.packager.chosen(), head);
            let mut gather = Gather::new(usize::MAX);
            cursor.gather_units(&self.packager, head, &mut gather);
            let taken = black_box(gather.slices()).iter().map(|slice| slice.len()).sum();
            cursor.units_sent(&self.packager, head, taken, |_| ());
        }
        self.ring.trim(true, Some(head));
        self.packager.trim(self.ring.base());
    }
}

/// Input to the estimate of a WebRTC viewer's path.
enum Told {
    Sent(usize),
    Feedback(Vec<u8>),
}

/// The path to a WebRTC viewer of a 2.5 Mb/s stream: 25 pictures a second of eleven packets each, feedback every
/// 50 ms, and a round trip of 40 ms.
pub struct EstimatedPath {
    start: Instant,
    told: Vec<(Instant, Told)>,
}

impl EstimatedPath {
    const PACKETS: u64 = 11;
    const PACKET_BYTES: usize = 1140;
    const TICK: Duration = Duration::from_millis(10);

    pub fn new(seconds: usize) -> Self {
        let start = Instant::now();
        let (mut told, mut on_their_way) = (Vec::new(), VecDeque::new());
        let (mut estimator, mut recorder) = (BandwidthEstimator::new(), ArrivalRecorder::new(start));
        estimator.number_packets(start);
        for tick in 0..u32::try_from(seconds).unwrap_or(0) * 100 {
            let now = start + Self::TICK * tick;
            if tick % 4 == 0 {
                for packet in 0..Self::PACKETS {
                    let at = now + Duration::from_micros(packet * 300);
                    told.push((at, Told::Sent(Self::PACKET_BYTES)));
                    on_their_way
                        .extend(estimator.packet_sent(at, Self::PACKET_BYTES).map(|number| (at, number)));
                }
            }
            while let Some((at, number)) = on_their_way.pop_front_if(|(at, _)| *at + 2 * Self::TICK <= now) {
                recorder.handle_packet(at + 2 * Self::TICK, number);
            }
            let mut out = Compound::new(1200);
            while recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut out) {
                let report = std::mem::replace(&mut out, Compound::new(1200));
                told.push((now + 2 * Self::TICK, Told::Feedback(report.as_bytes().to_vec())));
            }
        }
        told.sort_by_key(|(at, _)| *at);
        Self { start, told }
    }

    /// Passes all packets and reports to an estimator; returns its estimate, in bits per second.
    pub fn run(&self) -> Option<u64> {
        let mut estimator = BandwidthEstimator::new();
        estimator.number_packets(self.start);
        for (now, told) in &self.told {
            match told {
                Told::Sent(bytes) => {
                    black_box(estimator.packet_sent(*now, *bytes));
                }
                Told::Feedback(bytes) => {
                    for packet in packets(bytes) {
                        if let Ok(Rtcp::TransportFeedback(feedback)) = packet {
                            estimator.handle_feedback(*now, &feedback);
                        }
                    }
                }
            }
        }
        self.told.last().and_then(|(now, _)| estimator.estimate(*now))
    }
}
