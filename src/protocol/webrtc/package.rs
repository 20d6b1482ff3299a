//! The packets of a stream, cut once for all WebRTC viewers of a worker.
//!
//! Viewers cannot share the bytes that are sent, because each viewer has its own sequence numbers and keys. They share
//! packets that lack sequence numbers and are not encrypted: a log per track, which is kept from the newest key frame
//! on for new viewers. The item of a unit is its place in that log ([`Item::Packets`]).
//!
//! WebRTC shows pictures in order of arrival, and a browser whose decoder must reorder them stalls. In a stream with
//! B-frames, pictures that are shown before one already sent are therefore dropped: fewer pictures, in order. Others
//! may refer to dropped ones; a decoder then conceals the loss until the next key frame.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::webrtc::Track as PacketTrack;
use media::codec::Codec;
use media::codec::dependency::Dependency;
use media::{Origin, Timescale, Track, TrackId, TrackKind};
use rtp::history::{LoggedUnit, PacketLog};

use crate::hub::{Chosen, Entry, Fit, Item, Package, PacketLogs, Packets, Parts};

/// Maximum payload in datagrams to viewers (`Peer::payload_bytes_max` of the default configuration).
const PAYLOAD_BYTES_MAX: usize = 1200 - 58;
/// Time for which packets of the previous GOP are kept after a new one begins. A viewer that began with the previous
/// GOP has received it within this time, even though its packets are paced.
const CATCH_UP: Duration = Duration::from_secs(4);
/// Clock rate of video in RTP.
const VIDEO_TICKS: Timescale = Timescale::new(90_000);

/// A track divided into packets.
#[derive(Debug)]
struct Cut {
    track: TrackId,
    codec: Codec,
    packets: PacketTrack,
    /// RTP timestamp of the newest unit.
    edge: u32,
    /// Latest presentation time of a picture since the key frame.
    latest: i64,
    /// Key frames whose packets and all later ones are kept, with their arrival times: the newest key frame, and for a
    /// while the one before it.
    keys: VecDeque<(Instant, LoggedUnit)>,
}

impl Cut {
    /// Keeps the packets with which new viewers begin, and those that recent viewers have not received yet.
    fn hold(&mut self, at: Instant, key: Option<&LoggedUnit>) {
        if let Some(key) = key {
            self.keys.push_back((at, key.clone()));
        }
        let is_over = |(since, _): &(Instant, LoggedUnit)| at.saturating_duration_since(*since) >= CATCH_UP;
        while self.keys.len() > 2 || self.keys.get(1).is_some_and(is_over) {
            self.keys.pop_front();
        }
        if let Some((_, first)) = self.keys.front() {
            self.packets.hold(first);
        }
    }
}

/// The packets of a stream.
#[derive(Debug, Default)]
pub(super) struct RtcPackage {
    cuts: Vec<Cut>,
    /// Number of pictures left out.
    left_out: u64,
    /// True once the number of left-out pictures was taken.
    is_taken: Cell<bool>,
}

/// True if WebRTC carries the codec.
pub(super) const fn is_carried(codec: Codec) -> bool {
    match codec {
        Codec::H264 | Codec::H265 | Codec::Vp8 | Codec::Vp9 | Codec::Av1 | Codec::Opus | Codec::G711(_) => {
            true
        }
        Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => false,
    }
}

/// Returns the RTP clock rate of a codec (RFC 3551 §6, RFC 7587 §4.1).
pub(super) const fn clock_of(codec: Codec) -> Timescale {
    match codec {
        Codec::Opus => Timescale::new(48_000),
        Codec::G711(_) => Timescale::new(8_000),
        Codec::H264
        | Codec::H265
        | Codec::Vp8
        | Codec::Vp9
        | Codec::Av1
        | Codec::Aac
        | Codec::Mp3
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => VIDEO_TICKS,
    }
}

impl RtcPackage {
    fn cut(&self, track: TrackId) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.track == track)
    }

    fn cut_mut(&mut self, track: &Track) -> Option<&mut Cut> {
        let codec = track.config.codec();
        if let Some(at) = self.cuts.iter().position(|cut| cut.track == track.id) {
            if self.cuts.get(at).is_some_and(|cut| cut.codec == codec) {
                return self.cuts.get_mut(at);
            }
            self.cuts.swap_remove(at);
        }
        let packets = PacketTrack::new(codec, PAYLOAD_BYTES_MAX)?;
        let packets = if track.origin == Origin::Published { packets } else { packets.join_audio() };
        self.cuts.push(Cut {
            track: track.id,
            codec,
            packets,
            edge: 0,
            latest: i64::MIN,
            keys: VecDeque::new(),
        });
        self.cuts.last_mut()
    }

    fn push(&mut self, at: Instant, entry: &Entry, track: &Track) -> Option<Packets> {
        let unit = &entry.unit;
        let clock = clock_of(track.config.codec());
        #[allow(clippy::cast_possible_truncation, reason = "the lower half: RTP's clock wraps")]
        let timestamp = track.timescale.convert(unit.pts, clock) as u32;
        let cut = self.cut_mut(track)?;
        if unit.key_frame {
            cut.latest = unit.pts;
        } else if unit.pts < cut.latest {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        cut.latest = cut.latest.max(unit.pts);
        let logged = cut.packets.push(at, &track.config, unit.key_frame, timestamp, &unit.payload).ok()?;
        cut.edge = timestamp;
        if track.kind() == TrackKind::Video {
            cut.hold(at, unit.key_frame.then_some(&logged));
        }
        let needs = Dependency::of(&track.config, unit.key_frame, &unit.payload);
        Some(Packets { unit: logged, needs })
    }
}

impl Package for RtcPackage {
    fn fit(&self, track: &Track) -> Fit {
        Fit::of(is_carried(track.config.codec()))
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        // Parameter sets travel with the key frames.
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let track = entry.tracks.get(entry.unit.track);
        track.and_then(|track| self.push(entry.received, entry, track)).map(Item::Packets).unwrap_or_default()
    }

    fn logs(&self) -> Option<&dyn PacketLogs> {
        Some(self)
    }
}

impl PacketLogs for RtcPackage {
    fn log(&self, track: TrackId) -> Option<&PacketLog> {
        self.cut(track).map(|cut| cut.packets.log())
    }

    fn edge(&self, track: TrackId) -> Option<(Codec, u32)> {
        self.cut(track).map(|cut| (cut.codec, cut.edge))
    }

    fn take_left_out(&self) -> Option<u64> {
        (self.left_out > 0 && !self.is_taken.replace(true)).then_some(self.left_out)
    }
}
