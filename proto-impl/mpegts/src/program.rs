//! Writes the tracks of a stream as a program: turns access units into transport packets.
//!
//! Times are in ticks of 90 kHz, and the stream's zero is written as [`ZERO`]. ffmpeg's transport streams
//! also begin at this time, so a stream that is received as MPEG-TS and sent as MPEG-TS again keeps its
//! timestamps.
//!
//! Tracks with codecs that MPEG-TS cannot carry (AV1, VP8, VP9, FLAC, G.711, kinds of AAC without an ADTS
//! form) are left out of the program.

use alloc::vec::Vec;

use bytes::Bytes;
use media::codec::{h264, h265, opus};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, TrackKind, id3, language, nal, scte35};
use smallvec::SmallVec;

use crate::{
    CLOCK_MASK, Kind, Muxer, PROGRAM_STREAMS_MAX, Packing, SERVICES_MAX, StreamKind, StreamNumber,
    TICKS_PER_SECOND, Unit,
};

/// Timescale of PTS and DTS.
const TICKS: Timescale = Timescale::new(TICKS_PER_SECOND);
/// A stream's zero in the time of the transport stream, in ticks: 1.4 s, twice ffmpeg's muxdelay. The clock
/// is at most [`LATE_MAX`](crate::LATE_MAX) earlier than the unit, so with this offset it is never negative.
pub const ZERO: u64 = 126_000;
/// Sample rates below this are only defined in MPEG-2 (ISO/IEC 13818-3).
const MPEG2_RATE: u32 = 32_000;
/// The slices of a payload. Most frames have at most this many, so that they need no allocation.
type Pieces<'a> = SmallVec<[&'a [u8]; 24]>;

/// The announcement of a stream of timed metadata in addition to the tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metadata {
    /// Not carried.
    None,
    /// Not announced, because there were no tags yet.
    Awaited,
    /// Announced if there is room after all tracks.
    Found,
    /// Announced from the beginning; the program can carry one track fewer.
    Reserved,
}

/// A program made from the tracks of a stream.
#[derive(Debug)]
pub struct Program {
    muxer: Muxer,
    /// Ids of the first video track and of the first audio track. Their streams have the number 0, whatever
    /// these ids are.
    firsts: [Option<TrackId>; 2],
    /// The stream of timed metadata.
    metadata: Metadata,
    /// True if a stream of splice information is announced in addition to the tracks.
    has_splices: bool,
    /// True if each member of the stream is a program.
    has_members: bool,
    /// Streams of the tracks, with their kinds.
    streams: Vec<(StreamNumber, StreamKind)>,
}

impl Program {
    /// Creates a program without tracks.
    #[must_use]
    pub fn with_packing(packing: Packing) -> Self {
        Self {
            muxer: Muxer::with_packing(packing),
            firsts: [None, None],
            metadata: Metadata::None,
            has_splices: false,
            has_members: false,
            streams: Vec::new(),
        }
    }

    /// Announces a stream of timed metadata in addition to the tracks, from the next [`Self::set_tracks`] on.
    /// The program can then carry one track fewer.
    #[must_use]
    pub const fn with_metadata(mut self) -> Self {
        self.metadata = Metadata::Reserved;
        self
    }

    /// Announces a stream of timed metadata when the first tags are written, if there is room for it after all tracks.
    /// Without room, tags are dropped.
    #[must_use]
    pub const fn with_metadata_if_any(mut self) -> Self {
        self.metadata = Metadata::Awaited;
        self
    }

    /// Sets the tracks. The first track of each kind becomes the first stream of that kind. Tracks that
    /// cannot be carried are left out.
    ///
    /// If tracks have members, each member is a program with the member's name, so that players show its audio with its
    /// video ([`Muxer::set_services`]).
    pub fn set_tracks<'a>(&mut self, tracks: impl IntoIterator<Item = &'a Track>) {
        self.firsts = [None, None];
        let mut services = Vec::new();
        let mut streams: Vec<(StreamNumber, StreamKind)> = Vec::new();
        let mut languages = Vec::new();
        for track in tracks {
            let [video, audio] = &mut self.firsts;
            let first = if track.kind() == TrackKind::Video { video } else { audio };
            first.get_or_insert(track.id);
            let number = stream_number(track, self.firsts);
            if carries(track) {
                services.extend(track.member.as_ref().map(|member| (member.number, &*member.name)));
            }
            streams.extend(stream_kind(track).map(|kind| (number, kind)));
            let code = track.language.as_deref().and_then(language::three_letters);
            languages.extend(code.map(|code| (number, code)));
        }
        let texts =
            languages.iter().filter_map(|(number, code)| Some((*number, core::str::from_utf8(code).ok()?)));
        self.muxer.set_languages(texts);
        self.has_members = !services.is_empty();
        self.muxer.set_services(services);
        self.streams = streams;
        self.announce();
    }

    /// Sets the muxer's program: the streams of the tracks, and the additional ones. Splice information and metadata
    /// that is not announced from the beginning get streams only if there is room for them after all tracks, so that
    /// they never displace a track.
    fn announce(&mut self) {
        let streams_max = if self.has_members { 2 * SERVICES_MAX } else { PROGRAM_STREAMS_MAX };
        let tracks = self.streams.len();
        let has_metadata = match self.metadata {
            Metadata::None | Metadata::Awaited => false,
            Metadata::Found => tracks < streams_max,
            Metadata::Reserved => true,
        };
        let has_splices = self.has_splices && tracks.saturating_add(usize::from(has_metadata)) < streams_max;
        let others = [
            (has_metadata, Kind::Metadata, StreamKind::Id3),
            (has_splices, Kind::Splice, StreamKind::Splice),
        ];
        let others = others.into_iter().filter(|(is_there, ..)| *is_there && !self.streams.is_empty());
        let others: Vec<_> = others.map(|(_, kind, stream)| (StreamNumber::first(kind), stream)).collect();
        let tracks = self.streams.iter().copied().take(streams_max.saturating_sub(others.len()));
        self.muxer.set_program(tracks.chain(others));
    }

    /// Begins a segment: the next unit is preceded by the tables.
    pub const fn begin(&mut self) {
        self.muxer.begin();
    }

    /// Returns the tables for a receiver that joins here ([`Muxer::tables`]).
    #[must_use]
    pub fn tables(&self) -> Bytes {
        self.muxer.tables()
    }

    /// Returns the packets of the audio frames that are still held.
    #[must_use]
    pub fn flush(&mut self) -> Bytes {
        self.muxer.flush()
    }

    /// Returns packets that carry ID3 tags for this time in milliseconds. Empty if the program announces no
    /// metadata, or if `tags` are not ID3 tags.
    #[must_use]
    pub fn write_metadata(&mut self, pts_ms: i64, tags: &[u8]) -> Bytes {
        if !id3::is_tags(tags) {
            return Bytes::new();
        }
        if self.metadata == Metadata::Awaited {
            self.metadata = Metadata::Found;
            self.announce();
        }
        let pts = ticks(Timescale::MILLISECONDS, pts_ms);
        let payload: &[&[u8]] = &[tags];
        self.muxer.write(&Unit {
            kind: Kind::Metadata,
            number: 0,
            pts,
            dts: pts,
            random_access: false,
            payload,
        })
    }

    /// Returns packets that carry a splice_info_section whose splice is at this time in milliseconds. Empty
    /// if `section` is not a valid section. The first section causes its stream to be announced; if there is
    /// no room for the stream, the section is dropped. If the tables must be written first, the section is
    /// kept until then.
    #[must_use]
    pub fn write_splice(&mut self, pts_ms: i64, section: &[u8]) -> Bytes {
        let Some(section) = scte35::moved_to(section, ticks(Timescale::MILLISECONDS, pts_ms)) else {
            return Bytes::new();
        };
        if !self.has_splices {
            self.has_splices = true;
            self.announce();
        }
        self.muxer.write_section(&section)
    }

    /// Returns the packets of a unit of this track, preceded by those of frames held before. Empty if the
    /// unit itself is held. `None` if the track cannot be carried.
    pub fn write(&mut self, unit: &AccessUnit, track: &Track) -> Option<Bytes> {
        stream_kind(track)?;
        let head = audio_head(&track.config, &unit.payload);
        let mut payload = Pieces::new();
        match &track.config {
            CodecConfig::H264(config) => {
                let sets = config.parameter_sets().filter(|_| unit.key_frame);
                let is = |kind| move |nal: &[u8]| h264::nal_type(nal) == kind;
                picture(&h264::AUD, sets, &unit.payload, is(h264::NAL_AUD), is(h264::NAL_SPS), &mut payload);
            }
            CodecConfig::H265(config) => {
                let sets = config.parameter_sets().filter(|_| unit.key_frame);
                let is = |kind| move |nal: &[u8]| h265::nal_type(nal) == Some(kind);
                picture(&h265::AUD, sets, &unit.payload, is(h265::NAL_AUD), is(h265::NAL_SPS), &mut payload);
            }
            CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_) => payload.extend([&head[..], &unit.payload]),
            CodecConfig::Av1(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Vp8(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => return None,
        }
        let StreamNumber { kind, number } = stream_number(track, self.firsts);
        let (pts, dts) = (ticks(track.timescale, unit.pts), ticks(track.timescale, unit.dts));
        let made = Unit { kind, number, pts, dts, random_access: unit.key_frame, payload: &payload };
        if kind == Kind::Video {
            return Some(self.muxer.write(&made));
        }
        let duration = track.config.samples_of(&unit.payload).and_then(|(samples, rate)| {
            samples.checked_mul(u64::from(TICKS_PER_SECOND))?.checked_div(u64::from(rate))
        });
        Some(self.muxer.pack(&made, duration.unwrap_or(0)))
    }
}

/// True if MPEG-TS can carry the track.
#[must_use]
pub fn carries(track: &Track) -> bool {
    stream_kind(track).is_some()
}

/// Converts a time of the stream to a time in the transport stream.
fn ticks(scale: Timescale, time: i64) -> u64 {
    // In two's complement, a time before zero becomes a time before the clock wraps.
    scale.convert(time, TICKS).cast_unsigned().wrapping_add(ZERO) & CLOCK_MASK
}

/// Returns the number of a track's stream in the program.
fn stream_number(track: &Track, [video, audio]: [Option<TrackId>; 2]) -> StreamNumber {
    let (kind, first) =
        if track.kind() == TrackKind::Video { (Kind::Video, video) } else { (Kind::Audio, audio) };
    let number = match track.member_number() {
        Some(number) => number,
        None if first == Some(track.id) => 0,
        None => track.id.index(),
    };
    StreamNumber { kind, number }
}

/// Kind of the stream that carries the track; `None` if MPEG-TS cannot carry it.
fn stream_kind(track: &Track) -> Option<StreamKind> {
    Some(match &track.config {
        CodecConfig::H264(_) => StreamKind::H264,
        CodecConfig::H265(_) => StreamKind::H265,
        CodecConfig::Aac(config) => {
            config.adts(1)?;
            StreamKind::AacAdts
        }
        CodecConfig::Opus(config) if config.channels <= 8 => StreamKind::Opus { channels: config.channels },
        CodecConfig::Mp3(config) => StreamKind::MpegAudio { mpeg2: config.sample_rate < MPEG2_RATE },
        CodecConfig::Ac3(_) => StreamKind::Ac3,
        CodecConfig::Eac3(_) => StreamKind::Eac3,
        CodecConfig::Opus(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => return None,
    })
}

/// Returns the bytes to write before an audio frame.
fn audio_head(config: &CodecConfig, payload: &[u8]) -> SmallVec<[u8; 16]> {
    match config {
        CodecConfig::Aac(config) => {
            config.adts(payload.len()).map(|head| SmallVec::from_slice(&head)).unwrap_or_default()
        }
        CodecConfig::Opus(_) => SmallVec::from_vec(opus::Control::write(payload.len())),
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => SmallVec::new(),
    }
}

/// Writes a coded picture with start codes. An access unit delimiter comes first, because H.264 in MPEG-TS
/// must have one (ISO/IEC 13818-1 §2.14.1); then the parameter sets, unless the picture contains its own.
fn picture<'a>(
    delimiter: &'a [u8],
    sets: impl Iterator<Item = &'a [u8]>,
    payload: &'a [u8],
    is_delimiter: impl Fn(&[u8]) -> bool,
    is_set: impl Fn(&[u8]) -> bool,
    pieces: &mut Pieces<'a>,
) {
    let nals = || nal::Nals::new(payload, 4).flatten();
    let has_sets = nals().any(is_set);
    let own = nals().filter(|nal| !is_delimiter(nal));
    let sets = sets.filter(|_| !has_sets);
    for nal in core::iter::once(delimiter).chain(sets).chain(own) {
        pieces.extend([&nal::START_CODE[..], nal]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AUDIO_PID, Demuxer, Event};

    /// A configuration record with one SPS and one PPS.
    const AVC: &[u8] = &[
        1, 0x42, 0xc0, 0x1e, 0xff, 0xe1, 0, 8, 0x67, 0x42, 0xc0, 0x1e, 0xd9, 0, 0xa0, 0x47, 1, 0, 4, 0x68,
        0xce, 0x3c, 0x80,
    ];

    fn track(id: TrackId) -> Track {
        let aac = media::codec::aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        Track::new(id, CodecConfig::Aac(aac), Timescale::new(48_000))
    }

    /// Makes a frame of the first audio track.
    fn frame(dts: i64) -> AccessUnit {
        AccessUnit {
            track: TrackId::AUDIO,
            dts,
            pts: dts,
            key_frame: false,
            config_epoch: 1,
            payload: Bytes::from_static(b"frame"),
        }
    }

    #[test]
    fn the_first_track_of_a_kind_is_its_first_stream_and_time_begins_at_zero() {
        let id = TrackId::nth(TrackKind::Audio, 3).unwrap();
        let (tracks, unit) = ([track(id)], |dts| AccessUnit {
            track: id,
            dts,
            pts: dts,
            key_frame: false,
            config_epoch: 1,
            payload: Bytes::from_static(b"frame"),
        });
        let mut program = Program::with_packing(Packing::NONE);
        program.set_tracks(&tracks);
        let mut bytes = program.write(&unit(0), &tracks[0]).unwrap().to_vec();
        bytes.extend(program.write(&unit(48_000), &tracks[0]).unwrap());
        let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
        let mut times = Vec::new();
        while let Some(event) = demuxer.read(&mut input) {
            if let Event::Pes(pes) = event {
                times.push((pes.stream.pid, pes.pts));
            }
        }
        assert_eq!(times, [(AUDIO_PID, Some(ZERO)), (AUDIO_PID, Some(ZERO + 90_000))]);
        let vp8 = CodecConfig::Vp8(media::codec::vp8::Config::default());
        let other = Track::new(TrackId::VIDEO, vp8, TICKS);
        assert!(!carries(&other) && carries(&tracks[0]));
        assert_eq!(program.write(&AccessUnit { track: other.id, ..unit(0) }, &other), None);
    }

    #[test]
    fn each_member_of_a_stream_is_a_program_with_its_name() {
        let of = |kind, number: u8, name: &str| {
            let id = TrackId::nth(kind, number).unwrap();
            let member = Some(media::Member { number, name: name.into() });
            let config = match kind {
                TrackKind::Video => CodecConfig::H264(h264::Config::read(Bytes::from_static(AVC)).unwrap()),
                TrackKind::Audio | TrackKind::Data => track(id).config,
            };
            Track { member, ..Track::new(id, config, Timescale::new(48_000)) }
        };
        let names = ["ann", "ben", "cat", "dan", "eve", "fay", "gil", "hal"];
        let all: Vec<Track> = (0..)
            .zip(names)
            .flat_map(|(n, name)| [TrackKind::Video, TrackKind::Audio].map(|kind| of(kind, n, name)))
            .collect();
        let mut program = Program::with_packing(Packing::NONE);
        program.set_tracks(&all);
        let mut bytes = program.tables().to_vec();
        let joining = bytes.len();
        for track in &all {
            let payload = Bytes::from_static(&[0, 0, 0, 1, 0x65]);
            let unit = AccessUnit { track: track.id, payload, key_frame: true, ..frame(0) };
            bytes.extend(program.write(&unit, track).unwrap());
        }
        // Ann leaves. The others keep their numbers and PIDs.
        program.set_tracks(&all[2..4]);
        let unit = AccessUnit { track: all[3].id, ..frame(48_000) };
        let last = program.write(&unit, &all[3]).unwrap();
        let sections = |bytes: &[u8], pid: u16| {
            let packets = bytes.chunks(188).filter(|packet| {
                u16::from_be_bytes([packet[1] & 0x1f, packet[2]]) == pid && packet[1] & 0x40 != 0
            });
            packets.map(|packet| packet[5..].to_vec()).collect::<Vec<_>>()
        };
        // A program of each member: its map's PID, and its streams in it, with the shared clock.
        let pat = &sections(&bytes, 0)[0];
        assert_eq!(pat[8..12], [0, 1, 0xf0, 0]);
        assert_eq!(pat[36..40], [0, 8, 0xf0, 7]);
        let map = &sections(&bytes, 0x1001)[0];
        assert_eq!(map[3..5], [0, 2]);
        assert_eq!(map[8..10], [0xe1, 0], "the clock is in the first video");
        assert_eq!((map[12], map[13..15].to_vec()), (0x1b, vec![0xe1, 0x11]));
        assert_eq!((map[17], map[18..20].to_vec()), (0x0f, vec![0xe1, 0x31]));
        let names = |bytes: &[u8]| String::from_utf8_lossy(&sections(bytes, 0x11)[0]).into_owned();
        assert!(["ann", "ben", "hal"].iter().all(|name| names(&bytes).contains(name)), "{}", names(&bytes));
        assert!(!names(&last).contains("ann") && names(&last).contains("ben"));
        assert_eq!(sections(&last, 0)[0][8..12], [0, 2, 0xf0, 1]);
        assert_eq!(sections(&last, 0x1001)[0][12..15], [0x1b, 0xe1, 0x11]);
        // Ann returns, and then no stream has a member.
        program.set_tracks(&all[..4]);
        let unit = AccessUnit { track: all[1].id, ..frame(96_000) };
        let back = program.write(&unit, &all[1]).unwrap();
        program.set_tracks(&[Track { member: None, ..all[1].clone() }]);
        let alone = program.write(&frame(144_000), &all[1]).unwrap();
        // The table of programs changes each time, and so does its version.
        let versions = [&bytes[..], &last, &back, &alone].map(|bytes| (sections(bytes, 0)[0][5] >> 1) & 0x1f);
        assert_eq!(versions, [0, 1, 2, 3]);
        // The continuity counters of each PID have no gap.
        let mut counters = std::collections::BTreeMap::new();
        let later = [&last, &back, &alone].into_iter().flat_map(|bytes| bytes.chunks(188));
        let written = bytes[joining..].chunks(188).chain(later);
        for packet in written.filter(|packet| packet[3] & 0x10 != 0) {
            let (pid, counter) = ([packet[1] & 0x1f, packet[2]], packet[3] & 0xf);
            if let Some(before) = counters.insert(pid, counter) {
                assert_eq!(counter, (before + 1) & 0xf, "{pid:?}");
            }
        }
    }

    #[test]
    fn metadata_is_announced_beside_the_tracks_and_comes_back_as_it_went_in() {
        let tracks: Vec<Track> = (0..12).map(|n| track(TrackId::nth(TrackKind::Audio, n).unwrap())).collect();
        let tags = id3::text("name", "a text").unwrap();
        for has_metadata in [false, true] {
            let mut program = Program::with_packing(Packing::NONE);
            if has_metadata {
                program = program.with_metadata();
            }
            program.set_tracks(&tracks);
            let mut bytes = program.write_metadata(1000, &tags).to_vec();
            assert_eq!(bytes.is_empty(), !has_metadata);
            assert!(program.write_metadata(1000, b"no tags").is_empty());
            let frame = frame(96_000);
            bytes.extend(program.write(&frame, &tracks[0]).unwrap());
            let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
            let (mut kinds, mut units) = (Vec::new(), Vec::new());
            while let Some(event) = demuxer.read(&mut input) {
                match event {
                    Event::Program(map) => kinds.extend(map.streams.iter().map(|stream| stream.kind)),
                    Event::Pes(pes) => units.push((pes.stream.kind, pes.pts, pes.payload)),
                    Event::Splice(_) => {}
                }
            }
            let metadata = (StreamKind::Id3, Some(ZERO + 90_000), tags.clone());
            assert_eq!((kinds.len(), kinds.contains(&StreamKind::Id3)), (8, has_metadata));
            assert_eq!(units.contains(&metadata), has_metadata);
            assert_eq!(units.len(), 1 + usize::from(has_metadata), "nobody waits for metadata");
        }
    }

    #[test]
    fn metadata_that_may_come_is_announced_with_the_first_tags_where_there_is_room() {
        let tags = id3::text("name", "a text").unwrap();
        for count in [1, PROGRAM_STREAMS_MAX] {
            let numbers = 0..u8::try_from(count).unwrap();
            let tracks: Vec<Track> =
                numbers.map(|n| track(TrackId::nth(TrackKind::Audio, n).unwrap())).collect();
            let mut program = Program::with_packing(Packing::NONE).with_metadata_if_any();
            program.set_tracks(&tracks);
            let frame = frame(96_000);
            let mut bytes = program.write(&frame, &tracks[0]).unwrap().to_vec();
            let is_announced = |bytes: &[u8]| {
                let (mut demuxer, mut input, mut found) = (Demuxer::new(), bytes, None);
                while let Some(event) = demuxer.read(&mut input) {
                    if let Event::Program(map) = event {
                        found = Some(map.streams.iter().any(|stream| stream.kind == StreamKind::Id3));
                    }
                }
                found.unwrap()
            };
            assert!(!is_announced(&bytes));
            bytes.extend(program.write_metadata(1000, &tags));
            bytes.extend(program.write(&frame, &tracks[0]).unwrap());
            assert_eq!(is_announced(&bytes), count == 1);
            assert_eq!(bytes.windows(tags.len()).any(|some| some == &tags[..]), count == 1);
        }
    }

    #[test]
    fn splice_information_is_announced_with_the_first_section_and_comes_back_at_its_time() {
        let tracks = [track(TrackId::AUDIO)];
        // The first section needs two packets; the second section needs one packet.
        let long = scte35::insert(1, scte35::Kind::Out, Some(900_000));
        let sections = [long, scte35::insert(1, scte35::Kind::Cancel, None)];
        let mut program = Program::with_packing(Packing::NONE);
        program.set_tracks(&tracks);
        let mut bytes = program.write(&frame(0), &tracks[0]).unwrap().to_vec();
        assert!(program.write_splice(2_000, b"no section").is_empty());
        assert!(program.write_splice(2_000, &sections[0]).is_empty(), "behind the tables that announce it");
        bytes.extend(program.write(&frame(1024), &tracks[0]).unwrap());
        bytes.extend(program.write_splice(3_000, &sections[1]));
        let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
        let (mut kinds, mut splices) = (Vec::new(), Vec::new());
        while let Some(event) = demuxer.read(&mut input) {
            match event {
                Event::Program(map) => kinds.push(map.streams.len()),
                Event::Splice(section) => splices.push(scte35::Splice::read(&section).unwrap()),
                Event::Pes(_) => {}
            }
        }
        assert_eq!(kinds, [1, 2]);
        let times: Vec<_> = splices.iter().map(|splice| (splice.pts, splice.events[0].kind)).collect();
        assert_eq!(times, [(Some(ZERO + 180_000), scte35::Kind::Out), (None, scte35::Kind::Cancel)]);
        assert_eq!(demuxer.stats().sections_invalid, 0);
    }

    #[test]
    fn sections_that_wait_for_tables_are_bounded() {
        let mut program = Program::with_packing(Packing::NONE);
        program.set_tracks(&[track(TrackId::AUDIO)]);
        let section = scte35::insert(1, scte35::Kind::Out, None);
        (0..1_000).for_each(|n| assert!(program.write_splice(n, &section).is_empty()));
        let frame = frame(0);
        let bytes = program.write(&frame, &track(TrackId::AUDIO)).unwrap();
        assert!((10_000..18_000).contains(&bytes.len()), "{}", bytes.len());
    }

    #[test]
    fn splice_information_takes_no_track_away() {
        for (count, has_room) in [(7, true), (8, false)] {
            let tracks: Vec<Track> =
                (0..count).map(|n| track(TrackId::nth(TrackKind::Audio, n).unwrap())).collect();
            let mut program = Program::with_packing(Packing::NONE);
            program.set_tracks(&tracks);
            let mut bytes = program.write(&frame(0), &tracks[0]).unwrap().to_vec();
            bytes.extend(program.write_splice(1000, &scte35::insert(1, scte35::Kind::Out, None)));
            bytes.extend(program.write(&frame(48_000), &tracks[0]).unwrap());
            let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
            let (mut splices, mut sounds) = (0, Vec::new());
            while let Some(event) = demuxer.read(&mut input) {
                match event {
                    Event::Program(map) => {
                        sounds.push(map.streams.iter().filter(|stream| stream.kind.is_audio()).count());
                    }
                    Event::Splice(_) => splices += 1,
                    Event::Pes(_) => {}
                }
            }
            assert!(sounds.iter().all(|sounds| *sounds == usize::from(count)), "{sounds:?}");
            assert_eq!(splices, usize::from(has_room), "{count}");
        }
    }

    #[test]
    fn languages_of_tracks_are_told_and_a_change_makes_a_new_map() {
        let id = |n| TrackId::nth(TrackKind::Audio, n).unwrap();
        let spoken = |n, language: Option<&str>| Track { language: language.map(Into::into), ..track(id(n)) };
        let frame = AccessUnit {
            track: id(0),
            dts: 0,
            pts: 0,
            key_frame: false,
            config_epoch: 1,
            payload: Bytes::from_static(b"frame"),
        };
        let mut program = Program::with_packing(Packing::NONE);
        let mut bytes = Vec::new();
        for second in ["deu", "de", "fre"] {
            program.set_tracks(&[
                spoken(0, Some("eng")),
                spoken(1, Some(second)),
                spoken(2, Some("pt-BR")),
                spoken(3, None),
            ]);
            bytes.extend(program.write(&frame, &track(id(0))).unwrap());
        }
        // With the languages of eight streams, the table would not fit one packet, so all languages are left out.
        let many: Vec<Track> = (0..8).map(|n| spoken(n, Some("eng"))).collect();
        let opus = opus::Config { record: Bytes::new(), channels: 2, pre_skip: 0 };
        let many: Vec<Track> = many
            .into_iter()
            .map(|track| Track { config: CodecConfig::Opus(opus.clone()), ..track })
            .collect();
        program.set_tracks(&many);
        bytes.extend(program.tables());
        let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
        let mut told = Vec::new();
        while let Some(event) = demuxer.read(&mut input) {
            if let Event::Program(map) = event {
                let of = |stream: &crate::Stream| map.language_of(stream.pid).unwrap_or("-").to_owned();
                told.push(map.streams.iter().map(of).collect::<Vec<_>>().join(" "));
            }
        }
        assert_eq!(told, ["eng deu por -", "eng fra por -", "- - - - - - - -"]);
    }
}
