//! Access units as RTP packets, cut once for all viewers of a stream: interleaved in the connection or as datagrams.
//!
//! A track has a fixed pair of channels, its own sequence numbers and one source, so that viewers share the bytes:
//! interleaved frames (RFC 2326 §10.12), each a four-byte head and the packet that a datagram would contain. While
//! few viewers share a unit, the payloads of its packets are slices of the unit's own memory between heads. With many
//! viewers, sending two slices per 1.4 KB costs more than copying, so a unit is copied into one slice; [`frames`]
//! reads both.
//!
//! Sender reports follow the stream's own clock, so that tracks are aligned as in the stream.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use media::{CodecConfig, Timescale, Track, TrackId};
use rtp::payload::{Packetizer, Payloads};
use rtp::rtcp::{Compound, SenderInfo};
use rtp::{NtpAnchor, NtpTime, PayloadType, Ssrc};

use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts, Selection, Sharing};
use crate::protocol::FormatKind;
use crate::protocol::rtp_mapping::describe::{clock_of, payload_type_of};

/// Maximum payload of a packet: with RTP, UDP and IPv6 headers it fits an Ethernet frame and most tunnels.
const PAYLOAD_BYTES_MAX: usize = 1380;
/// Maximum size of an Opus packet, which is never split and has at most six frames of 1275 bytes (RFC 6716 §3.2).
/// Larger ones are dropped, because they would exceed the length field of a frame or the size of a datagram.
const WHOLE_BYTES_MAX: usize = 6 * 1275 + 14;
/// Number of viewers from which a unit is copied into one slice.
const ONE_SLICE_FROM: usize = 16;
/// Size of the head of an interleaved frame.
const FRAME_HEAD_BYTES: usize = 4;
/// Size of a frame head and an RTP header together.
const HEAD_BYTES: usize = FRAME_HEAD_BYTES + rtp::HEADER_BYTES;
/// Size of the memory blocks from which heads are taken.
const SCRATCH_BYTES: usize = 4096;
/// Interval of the sender reports of a track: 5 s (RFC 3550 §6.2).
const REPORT_INTERVAL_MS: i64 = 5000;
/// Maximum size of a report in bytes.
const REPORT_BYTES_MAX: usize = 256;
/// First byte of an RTP header: version 2, no flags. `MARKER` is the marker bit in the second byte.
const RTP_VERSION: u8 = 0x80;
const MARKER: u8 = 0x80;
const MICROSECONDS: Timescale = Timescale::new(1_000_000);

/// Format of RTP packets.
pub(super) static FORMAT: FormatKind = FormatKind {
    name: "rtsp",
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::EACH,
    package: |_| Some(Box::new(RtspPackage::default())),
    is_given_up_by_close: true,
    is_for_nodes: false,
};

/// Returns the channel of a track's RTP packets; its RTCP has the next channel.
pub(super) const fn channel_of(track: TrackId) -> u8 {
    track.number().saturating_mul(2)
}

/// A track that is cut into packets.
#[derive(Debug)]
struct Cut {
    track: TrackId,
    config: CodecConfig,
    packetizer: Packetizer,
    payload_type: PayloadType,
    clock: Timescale,
    ssrc: Ssrc,
    /// Sequence number of the next packet.
    sequence: u16,
    packets: u32,
    octets: u32,
    /// Time of the last sender report, on the stream's clock.
    reported_ms: Option<i64>,
}

impl Cut {
    fn new(track: &Track, seed: u64) -> Option<Self> {
        // The numbers are derived from the stream, because the package has no other source of randomness. They need not
        // be secret: a viewer accepts packets from its server only.
        let mixed = (seed.rotate_left(8) ^ u64::from(track.id.number())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [a, b, c, d, e, f, ..] = mixed.to_be_bytes();
        Some(Self {
            track: track.id,
            config: track.config.clone(),
            packetizer: Packetizer::new(track.config.codec(), PAYLOAD_BYTES_MAX)?,
            payload_type: payload_type_of(track)?,
            clock: clock_of(&track.config)?,
            ssrc: Ssrc(u32::from_be_bytes([a, b, c, d])),
            sequence: u16::from_be_bytes([e, f]),
            packets: 0,
            octets: 0,
            reported_ms: None,
        })
    }

    /// Returns the RTP timestamp nearest to a time of the track; if two are equally near, the later one.
    fn timestamp(&self, timescale: Timescale, time: i64) -> u32 {
        let doubled = timescale.convert(time.saturating_mul(2), self.clock);
        #[allow(clippy::cast_possible_truncation, reason = "RTP's clock wraps")]
        let timestamp = (doubled.saturating_add(1) >> 1) as u32;
        timestamp
    }
}

/// The packets of a stream.
#[derive(Debug, Default)]
pub(super) struct RtspPackage {
    cuts: Vec<Cut>,
    /// The wall clock at the stream's zero, once known.
    clock: Option<NtpTime>,
    seed: u64,
    scratch: BytesMut,
    payloads: Payloads,
    out: Vec<Bytes>,
    /// True if each unit is copied into one slice.
    in_one: bool,
}

impl RtspPackage {
    /// Returns the index of a track in `cuts`, and adds the track at its first use. A track with a new configuration
    /// starts again.
    fn place(&mut self, track: &Track) -> Option<usize> {
        if let Some(at) = self.cuts.iter().position(|cut| cut.track == track.id) {
            let cut = self.cuts.get_mut(at)?;
            if cut.config == track.config {
                return Some(at);
            }
            if clock_of(&track.config) == Some(cut.clock) && track.config.codec() == cut.config.codec() {
                cut.config = track.config.clone();
                return Some(at);
            }
            self.cuts.swap_remove(at);
        }
        self.cuts.push(Cut::new(track, self.seed)?);
        self.cuts.len().checked_sub(1)
    }

    /// Adds a sender report of a track for a time on its clock.
    fn report(&mut self, track: &Track, dts: i64) {
        // Before the first unit there is neither a clock nor a seed for the track's numbers.
        let Some(zero) = self.clock else { return };
        let Some(at) = self.place(track) else { return };
        let Some(cut) = self.cuts.get_mut(at) else { return };
        let micros = track.timescale.convert(dts, MICROSECONDS);
        let ntp = zero.plus(Duration::from_micros(micros.max(0).unsigned_abs()));
        let rtp_timestamp = cut.timestamp(track.timescale, dts);
        let info = SenderInfo { ntp, rtp_timestamp, packets: cut.packets, octets: cut.octets };
        let mut compound = Compound::new(REPORT_BYTES_MAX);
        compound.sender_report(cut.ssrc, &info, &[]);
        compound.source_description(cut.ssrc, "millstream");
        let bytes = Bytes::from(compound.into_bytes());
        let head = self.frame_head(channel_of(track.id).saturating_add(1), bytes.len());
        self.out.extend([head, bytes]);
    }

    fn frame_head(&mut self, channel: u8, length: usize) -> Bytes {
        self.room();
        put_frame_head(&mut self.scratch, channel, length);
        self.scratch.split().freeze()
    }

    fn room(&mut self) {
        if self.scratch.capacity() < HEAD_BYTES {
            self.scratch = BytesMut::with_capacity(SCRATCH_BYTES);
        }
    }

    /// Returns the slices added so far.
    fn take(&mut self) -> Parts {
        if !self.in_one || self.out.len() < 3 {
            return Parts::new(self.out.drain(..));
        }
        let mut whole = BytesMut::with_capacity(self.out.iter().map(Bytes::len).sum());
        self.out.drain(..).for_each(|slice| whole.put_slice(&slice));
        Parts::new([whole.freeze()])
    }

    /// Derives the wall clock at the stream's zero from a unit.
    fn see(&mut self, entry: &Entry) {
        if self.clock.is_none() {
            let wall =
                NtpAnchor::new(entry.received, Duration::from_millis(entry.wall_ms)).at(entry.received);
            let since = Duration::from_millis(entry.dts_ms.max(0).unsigned_abs());
            self.clock = Some(wall.minus(since));
            self.seed = entry.wall_ms;
        }
    }

    /// Adds the packets of a unit.
    fn packets(&mut self, entry: &Entry, track: &Track) {
        let Some(at) = self.place(track) else { return };
        let Some(cut) = self.cuts.get_mut(at) else { return };
        let unit = &entry.unit;
        let done = cut.packetizer.packetize(&track.config, unit.key_frame, &unit.payload, &mut self.payloads);
        if let Err(error) = done {
            tracing::debug!(%error, "unit without packets");
            return;
        }
        let mut timestamp = cut.timestamp(track.timescale, unit.pts);
        let mut payloads = self.payloads.take();
        while let Some(payload) = payloads.next() {
            if payload.len() > WHOLE_BYTES_MAX {
                continue;
            }
            self.room();
            let Some(cut) = self.cuts.get_mut(at) else { return };
            let marker = payloads.len() == 0;
            let length = rtp::HEADER_BYTES.saturating_add(payload.len());
            put_frame_head(&mut self.scratch, channel_of(track.id), length);
            let marked = cut.payload_type.number() | if marker { MARKER } else { 0 };
            self.scratch.put_slice(&[RTP_VERSION, marked]);
            self.scratch.put_u16(cut.sequence);
            self.scratch.put_u32(timestamp);
            self.scratch.put_u32(cut.ssrc.0);
            cut.sequence = cut.sequence.wrapping_add(1);
            cut.packets = cut.packets.wrapping_add(1);
            cut.octets = cut.octets.wrapping_add(u32::try_from(payload.len()).unwrap_or(0));
            if let CodecConfig::G711(config) = &cut.config {
                // The next packet begins after the samples of this one.
                let samples = payload.len().checked_div(usize::from(config.channels)).unwrap_or(0);
                timestamp = timestamp.wrapping_add(u32::try_from(samples).unwrap_or(0));
            }
            self.out.extend([self.scratch.split().freeze(), payload]);
        }
    }
}

/// Writes the head of an interleaved frame: `$`, the channel, the length (RFC 2326 §10.12).
fn put_frame_head(out: &mut BytesMut, channel: u8, length: usize) {
    out.put_slice(b"$");
    out.put_u8(channel);
    // No packet is longer than [`WHOLE_BYTES_MAX`].
    out.put_u16(u16::try_from(length).unwrap_or(u16::MAX));
}

/// An interleaved frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) channel: u8,
    /// The heads of frame and packet, or the whole frame.
    pub(super) head: Bytes,
    /// The rest of the frame.
    pub(super) payload: Bytes,
}

impl Frame {
    /// Returns the packet, without the frame's head, in two slices.
    pub(super) fn into_packet(self) -> (Bytes, Bytes) {
        (self.head.slice(FRAME_HEAD_BYTES.min(self.head.len())..), self.payload)
    }
}

/// Iterates over the frames in the output of [`RtspPackage`].
pub(super) fn frames(parts: &Parts) -> impl Iterator<Item = Frame> {
    let mut slices = parts.slices().iter();
    let mut rest = Bytes::new();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            rest = slices.next()?.clone();
        }
        let &[_, channel, high, low] = rest.first_chunk::<FRAME_HEAD_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let whole = length.saturating_add(FRAME_HEAD_BYTES);
        let head = rest.split_to(whole.min(rest.len()));
        let payload = if head.len() < whole { slices.next()?.clone() } else { Bytes::new() };
        Some(Frame { channel, head, payload })
    })
}

impl Package for RtspPackage {
    fn fit(&self, track: &Track) -> Fit {
        Fit::of(clock_of(&track.config).is_some())
    }

    fn prelude(&mut self, chosen: &Chosen, dts_ms: i64) -> Parts {
        // Parameter sets travel with the key frames; reports align the tracks. Only new viewers get these reports;
        // they do not delay the next report for the other viewers.
        for track in chosen.iter() {
            self.report(track, Timescale::MILLISECONDS.convert(dts_ms, track.timescale));
        }
        self.take()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let Some(track) = entry.tracks.get(entry.unit.track) else { return Item::default() };
        self.see(entry);
        let Some(at) = self.place(track) else { return Item::default() };
        let reported = self.cuts.get(at).and_then(|cut| cut.reported_ms);
        if reported.is_none_or(|at| entry.dts_ms.saturating_sub(at) >= REPORT_INTERVAL_MS) {
            self.report(track, entry.unit.dts);
            if let Some(cut) = self.cuts.get_mut(at) {
                cut.reported_ms = Some(entry.dts_ms);
            }
        }
        self.packets(entry, track);
        self.take().into()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }
}

impl Sharing for RtspPackage {
    fn set_subscribers(&mut self, subscribers: usize) {
        self.in_one = subscribers >= ONE_SLICE_FROM;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use media::codec::{opus, vp8};
    use media::{AccessUnit, Tracks};

    use super::*;

    struct Stream {
        package: RtspPackage,
        tracks: Arc<Tracks>,
        now: Instant,
    }

    impl Stream {
        fn new() -> Self {
            let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
            let video = track(TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default()));
            let audio = track(TrackId::AUDIO, CodecConfig::Opus(opus::Config::of_channels(2).unwrap()));
            let tracks = Arc::new(Tracks::new(1, [video, audio]));
            Self { package: RtspPackage::default(), tracks, now: Instant::now() }
        }

        /// The frames of a unit: channel and packet.
        fn frames(&mut self, track: TrackId, ms: i64, payload: &[u8]) -> Vec<(u8, Vec<u8>)> {
            let unit = AccessUnit {
                track,
                dts: ms,
                pts: ms,
                key_frame: true,
                config_epoch: 1,
                payload: Bytes::copy_from_slice(payload),
            };
            let entry = Entry::new(self.now, 1_700_000_000_000, unit, Arc::clone(&self.tracks));
            let item = self.package.unit(&entry, &Chosen::default());
            let parts = item.bytes().cloned().unwrap_or_default();
            let (bytes, read) = (parts.slices().concat(), frames(&parts).collect::<Vec<_>>());
            let (mut rest, mut frames) = (&bytes[..], Vec::new());
            while let [b'$', channel, high, low, behind @ ..] = rest {
                let (packet, behind) = behind.split_at(usize::from(*high) << 8 | usize::from(*low));
                frames.push((*channel, packet.to_vec()));
                rest = behind;
            }
            assert!(rest.is_empty(), "nothing stands between frames");
            assert!(!self.package.in_one || parts.slices().len() <= 2);
            let packet = |frame: Frame| (frame.channel, <[Bytes; 2]>::from(frame.into_packet()).concat());
            assert_eq!(read.into_iter().map(packet).collect::<Vec<_>>(), frames);
            frames
        }
    }

    #[test]
    fn a_unit_is_frames_on_the_channels_of_its_track_and_reports_come_first() {
        let mut stream = Stream::new();
        let frames = stream.frames(TrackId::VIDEO, 1000, &[7; 4000]);
        let channel = channel_of(TrackId::VIDEO);
        assert_eq!(frames[0].0, channel + 1);
        assert!(rtp::rtcp::packets(&frames[0].1).all(|part| part.is_ok()));
        let packets: Vec<_> =
            frames[1..].iter().map(|(_, bytes)| rtp::Packet::read(bytes).unwrap()).collect();
        assert!(packets.len() == 3 && frames[1..].iter().all(|frame| frame.0 == channel));
        let marked: Vec<bool> = packets.iter().map(|packet| packet.header.marker).collect();
        assert_eq!(marked, [false, false, true]);
        let first = packets[0].header;
        assert!(packets.iter().all(|packet| packet.header.timestamp == first.timestamp));
        // The next unit continues the sequence numbers, and needs no report yet.
        let next = stream.frames(TrackId::VIDEO, 1040, &[7; 10]);
        let header = rtp::Packet::read(&next[0].1).unwrap().header;
        assert_eq!((next.len(), header.ssrc), (1, first.ssrc));
        assert_eq!(header.timestamp.wrapping_sub(first.timestamp), 3600);
        // After five seconds, the next report is due and is sent as a second frame.
        assert_eq!(stream.frames(TrackId::VIDEO, 6000, &[7; 10]).len(), 2);
    }

    #[test]
    fn each_track_of_each_stream_has_its_own_source_and_first_number() {
        let stream = Stream::new();
        let mut seen = std::collections::BTreeSet::new();
        for (wall_ms, track) in [1_700_000_000_000, 1_700_000_000_001]
            .into_iter()
            .flat_map(|wall_ms| [TrackId::VIDEO, TrackId::AUDIO].map(|track| (wall_ms, track)))
        {
            let key = crate::hub::FormatKey::new("rtsp", 0);
            let package = Some(Box::new(RtspPackage::default()) as Box<dyn Package>);
            let mut packager = crate::hub::Packager::new(key, package, &stream.tracks, 0);
            let payload = Bytes::from_static(&[0xfc; 100]);
            let unit = AccessUnit { track, dts: 0, pts: 0, key_frame: true, config_epoch: 1, payload };
            packager.push(&Entry::new(stream.now, wall_ms, unit, Arc::clone(&stream.tracks)));
            let parts = packager.newest();
            let packet = frames(&parts).find(|frame| frame.channel == channel_of(track)).unwrap();
            let packet = <[Bytes; 2]>::from(packet.into_packet()).concat();
            let header = rtp::Packet::read(&packet).unwrap().header;
            assert!(header.ssrc.0 != 0 && header.sequence_number.0 != 0, "{track:?}: {header:?}");
            seen.insert((header.ssrc.0, header.sequence_number.0));
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_many_share_is_one_slice_with_the_same_frames() {
        let [mut few, mut many] = [Stream::new(), Stream::new()];
        many.now = few.now;
        many.package.set_subscribers(ONE_SLICE_FROM);
        few.package.set_subscribers(ONE_SLICE_FROM - 1);
        assert!(many.package.in_one && !few.package.in_one);
        for (n, length) in [4000, 10, 1, 100_000, 1380].into_iter().enumerate() {
            let (track, ms) = (TrackId::VIDEO, i64::try_from(n * 3000).unwrap());
            assert_eq!(many.frames(track, ms, &vec![7; length]), few.frames(track, ms, &vec![7; length]));
        }
        many.package.set_subscribers(1);
        assert!(!many.package.in_one);
    }

    #[test]
    fn p_09_what_no_frame_can_hold_is_left_out() {
        let mut stream = Stream::new();
        let sound = |stream: &mut Stream, length| {
            let frames = stream.frames(TrackId::AUDIO, 1000, &vec![0xfc; length]);
            frames.into_iter().filter(|frame| frame.0 == channel_of(TrackId::AUDIO)).count()
        };
        let lengths = [100, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1, 70_000, 1 << 20, 100];
        assert_eq!(lengths.map(|length| sound(&mut stream, length)), [1, 1, 0, 0, 0, 1]);
    }
}
