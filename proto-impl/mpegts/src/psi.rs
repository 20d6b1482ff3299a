//! Program association and program map tables (§2.4.4.3, §2.4.4.8), and the kinds of streams.

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};
use media::captions::Services;
use wire::Reader;

use crate::section::Section;
use crate::{Error, Pid};

/// table_id of the program association section.
pub(crate) const TABLE_PAT: u8 = 0;
/// table_id of the program map section.
pub(crate) const TABLE_PMT: u8 = 2;

/// table_id of the service description section of this transport stream (ETSI EN 300 468 §5.1.3).
const TABLE_SDT: u8 = 0x42;
/// service_descriptor (ETSI EN 300 468 §6.2.33).
const TAG_SERVICE: u8 = 0x48;
/// service_type of digital television.
const SERVICE_TELEVISION: u8 = 0x01;
/// First byte of a text in UTF-8 (ETSI EN 300 468 annex A.2).
const TEXT_UTF8: u8 = 0x15;
/// Maximum number of bytes of a service's name. The names of all programs then fit one section.
const SERVICE_NAME_BYTES_MAX: usize = 64;

/// registration_descriptor (§2.6.8).
const TAG_REGISTRATION: u8 = 0x05;
/// ISO_639_language_descriptor (§2.6.18).
const TAG_LANGUAGE: u8 = 0x0a;
/// Code of an undetermined language (ISO 639-2).
const UNDETERMINED: Language = *b"und";
/// caption_service_descriptor (ATSC A/65 §6.9.2).
const TAG_CAPTION_SERVICE: u8 = 0x86;
/// AC-3_descriptor (ETSI EN 300 468 annex D.3).
const TAG_AC3: u8 = 0x6a;
/// enhanced_ac-3_descriptor (ETSI EN 300 468 annex D.5).
const TAG_EAC3: u8 = 0x7a;
/// extension_descriptor (ETSI EN 300 468 §6.2.16).
const TAG_EXTENSION: u8 = 0x7f;
/// metadata_pointer_descriptor (§2.6.58).
const TAG_METADATA_POINTER: u8 = 0x25;
/// metadata_descriptor (§2.6.60).
const TAG_METADATA: u8 = 0x26;
/// metadata_application_format and metadata_format, if a four-letter identifier follows each (§2.6.59,
/// §2.6.61).
const IDENTIFIED: u16 = 0xffff;
/// Identifier of ID3 tags, registered with SMPTE.
const ID3: &[u8; 4] = b"ID3 ";
/// cue_identifier_descriptor (ANSI/SCTE 35 §8.2).
const TAG_CUE_IDENTIFIER: u8 = 0x8a;
/// Identifier of splice information (ANSI/SCTE 35 §8.1).
const CUEI: &[u8; 4] = b"CUEI";
/// descriptor_tag_extension of Opus (user defined, "Opus in MPEG-TS").
const TAG_EXTENSION_OPUS: u8 = 0x80;

/// Kind of an elementary stream, from its stream_type (table 2-34) and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// H.264 with start codes.
    H264,
    /// H.265 with start codes.
    H265,
    /// AAC in ADTS.
    AacAdts,
    /// AAC in LATM with synchronization (LOAS).
    AacLatm,
    /// MPEG audio of any layer: stream_type 0x03, or 0x04 for the low sample rates of MPEG-2.
    MpegAudio {
        /// True if the stream is announced as MPEG-2.
        mpeg2: bool,
    },
    /// AC-3.
    Ac3,
    /// Enhanced AC-3.
    Eac3,
    /// Opus with control headers.
    Opus {
        /// channel_config_code: 1 to 8 are the number of channels, in the order of Vorbis.
        channels: u8,
    },
    /// Timed metadata: ID3 tags ("Timed Metadata for HTTP Live Streaming", Apple).
    Id3,
    /// Splice information in sections (ANSI/SCTE 35).
    Splice,
    /// Any other stream_type.
    Other(u8),
}

impl StreamKind {
    /// Determines the kind from stream_type and descriptors. Private data (stream_type 6) is identified by its
    /// descriptors. If one of them has an invalid length, all are ignored.
    fn read(stream_type: u8, descriptors: &[u8]) -> Self {
        match stream_type {
            0x03 => Self::MpegAudio { mpeg2: false },
            0x04 => Self::MpegAudio { mpeg2: true },
            0x06 => Self::private(descriptors).ok().flatten().unwrap_or(Self::Other(stream_type)),
            0x0f => Self::AacAdts,
            0x11 => Self::AacLatm,
            0x15 if is_id3(descriptors) => Self::Id3,
            0x1b => Self::H264,
            0x24 => Self::H265,
            // ATSC defines the stream_types 0x81 and 0x87 (A/53 part 3, A/52 annex G).
            0x81 => Self::Ac3,
            // In other contexts this stream_type has another meaning (DTS on discs), so it only counts with the
            // identifier.
            0x86 if has_identifier(descriptors, CUEI) => Self::Splice,
            0x87 => Self::Eac3,
            other => Self::Other(other),
        }
    }

    /// Returns the kind of private data from its descriptors; `None` if they do not identify it.
    fn private(descriptors: &[u8]) -> Result<Option<Self>, Error> {
        let (mut private, mut opus_channels) = (None, 2);
        let mut reader = Reader::new(descriptors);
        while !reader.is_empty() {
            let tag = reader.u8()?;
            let length = reader.u8()?;
            let mut body = reader.sub(usize::from(length))?;
            let kind = match tag {
                TAG_REGISTRATION => match body.rest().first_chunk::<4>() {
                    Some(b"Opus") => Some(Self::Opus { channels: 2 }),
                    Some(b"AC-3") => Some(Self::Ac3),
                    Some(b"EAC3") => Some(Self::Eac3),
                    Some(b"HEVC") => Some(Self::H265),
                    Some(ID3) => Some(Self::Id3),
                    _ => None,
                },
                TAG_AC3 => Some(Self::Ac3),
                TAG_EAC3 => Some(Self::Eac3),
                TAG_EXTENSION if body.u8() == Ok(TAG_EXTENSION_OPUS) => {
                    opus_channels = body.u8().unwrap_or(opus_channels);
                    None
                }
                _ => None,
            };
            private = private.or(kind);
        }
        Ok(match private {
            Some(Self::Opus { .. }) => Some(Self::Opus { channels: opus_channels }),
            other => other,
        })
    }

    /// Returns the stream_type that announces this kind.
    #[must_use]
    pub const fn stream_type(self) -> u8 {
        match self {
            Self::H264 => 0x1b,
            Self::H265 => 0x24,
            Self::AacAdts => 0x0f,
            Self::AacLatm => 0x11,
            Self::MpegAudio { mpeg2: false } => 0x03,
            Self::MpegAudio { mpeg2: true } => 0x04,
            Self::Ac3 => 0x81,
            Self::Eac3 => 0x87,
            Self::Opus { .. } => 0x06,
            Self::Id3 => 0x15,
            Self::Splice => 0x86,
            Self::Other(stream_type) => stream_type,
        }
    }

    /// True for supported video.
    #[must_use]
    pub const fn is_video(self) -> bool {
        matches!(self, Self::H264 | Self::H265)
    }

    /// True for supported audio.
    #[must_use]
    pub const fn is_audio(self) -> bool {
        !self.is_video() && !matches!(self, Self::Id3 | Self::Splice | Self::Other(_))
    }

    /// Returns the stream_id of the PES packets (table 2-22). Formats that MPEG does not define use private_stream_1.
    /// (Splice information is sent in sections, without PES packets.)
    #[must_use]
    pub const fn stream_id(self) -> u8 {
        match self {
            Self::H264 | Self::H265 => 0xe0,
            Self::AacAdts | Self::AacLatm | Self::MpegAudio { .. } => 0xc0,
            Self::Ac3 | Self::Eac3 | Self::Opus { .. } | Self::Id3 | Self::Splice | Self::Other(_) => 0xbd,
        }
    }

    fn write_descriptors(self, out: &mut BytesMut) {
        let registration = match self {
            Self::H265 => b"HEVC",
            Self::Ac3 => b"AC-3",
            Self::Eac3 => b"EAC3",
            Self::Opus { .. } => b"Opus",
            // cue_stream_type 1: the stream may have splice commands of all kinds (ANSI/SCTE 35 §8.2.1).
            Self::Splice => return out.put_slice(&[TAG_CUE_IDENTIFIER, 1, 1]),
            Self::Id3 => {
                out.put_slice(&[TAG_METADATA, 13]);
                put_id3_service(out);
                // No decoder configuration and no DSM-CC; the other bits are reserved.
                return out.put_u8(0x0f);
            }
            Self::H264 | Self::AacAdts | Self::AacLatm | Self::MpegAudio { .. } | Self::Other(_) => return,
        };
        out.put_slice(&[TAG_REGISTRATION, 4]);
        out.put_slice(registration);
        if let Self::Opus { channels } = self {
            out.put_slice(&[TAG_EXTENSION, 2, TAG_EXTENSION_OPUS, channels]);
        }
    }
}

/// Returns false only if a metadata descriptor states that the data is something other than ID3 tags.
fn is_id3(descriptors: &[u8]) -> bool {
    let mut reader = Reader::new(descriptors);
    while let (Ok(tag), Ok(length)) = (reader.u8(), reader.u8()) {
        let Ok(body) = reader.take(usize::from(length)) else { return true };
        if tag == TAG_METADATA || tag == TAG_REGISTRATION {
            return body.windows(ID3.len()).any(|four| four == ID3);
        }
    }
    true
}

/// Returns true if a registration_descriptor has this identifier. Reading stops at a truncated descriptor.
fn has_identifier(descriptors: &[u8], identifier: &[u8; 4]) -> bool {
    let mut reader = Reader::new(descriptors);
    while let (Ok(tag), Ok(length)) = (reader.u8(), reader.u8()) {
        let Ok(body) = reader.take(usize::from(length)) else { return false };
        if tag == TAG_REGISTRATION && body.first_chunk::<4>() == Some(identifier) {
            return true;
        }
    }
    false
}

/// Writes the formats of ID3 tags and the metadata_service_id. There is one service, with the id zero.
fn put_id3_service(out: &mut BytesMut) {
    out.put_u16(IDENTIFIED);
    out.put_slice(ID3);
    out.put_u8(0xff);
    out.put_slice(ID3);
    out.put_u8(0);
}

/// An elementary stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// PID of the stream.
    pub pid: Pid,
    /// Kind of the stream.
    pub kind: StreamKind,
}

/// A program association section. Readers use only its first program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pat {
    /// transport_stream_id.
    pub transport_stream: u16,
    /// program_number, not zero.
    pub program: u16,
    /// PID of the program's PMT.
    pub pmt_pid: Pid,
}

impl Pat {
    /// Returns the first program of a section; `None` if there is none.
    pub(crate) fn read(section: &Section<'_>) -> Result<Option<Self>, Error> {
        let mut reader = Reader::new(section.body);
        while !reader.is_empty() {
            let (program, pid) = (reader.u16()?, Pid::new(reader.u16()?));
            // Program number 0 stands for the network information.
            if program != 0 && pid.is_assignable() {
                return Ok(Some(Self { transport_stream: section.id, program, pmt_pid: pid }));
            }
        }
        Ok(None)
    }

    /// Writes the section of these programs of one transport stream.
    pub(crate) fn write(programs: &[Self], version: u8, out: &mut BytesMut) {
        let mut body = BytesMut::with_capacity(programs.len() * 4);
        for one in programs {
            body.put_u16(one.program);
            body.put_u16(0xe000 | one.pmt_pid.get());
        }
        let id = programs.first().map_or(0, |one| one.transport_stream);
        Section { table_id: TABLE_PAT, id, version, current: true, number: 0, body: &body }.write(out);
    }
}

/// Writes a service description section of this transport stream (ETSI EN 300 468 §5.2.3): the name of each program.
/// Names of more than [`SERVICE_NAME_BYTES_MAX`] bytes are cut.
pub(crate) fn write_services(transport_stream: u16, names: &[(u16, &str)], version: u8, out: &mut BytesMut) {
    let mut body = BytesMut::new();
    // original_network_id, which is that of the transport stream here; reserved bits.
    body.put_u16(transport_stream);
    body.put_u8(0xff);
    for (program, name) in names {
        let name = name.get(..name.floor_char_boundary(SERVICE_NAME_BYTES_MAX)).unwrap_or_default();
        // The text is in Latin letters, unless its first byte selects UTF-8 (annex A.2).
        let coding: &[u8] = if name.is_ascii() { &[] } else { &[TEXT_UTF8] };
        let name_bytes = u8::try_from(coding.len() + name.len()).unwrap_or(0);
        body.put_u16(*program);
        // No schedule of events; running, not scrambled.
        body.put_u8(0xfc);
        body.put_u16(0x8000 | (u16::from(name_bytes) + 5));
        body.put_slice(&[TAG_SERVICE, name_bytes + 3, SERVICE_TELEVISION, 0, name_bytes]);
        body.put_slice(coding);
        body.put_slice(name.as_bytes());
    }
    let id = transport_stream;
    Section { table_id: TABLE_SDT, id, version, current: true, number: 0, body: &body }.write(out);
}

/// A language by its three letters in lower case (ISO 639-2).
pub(crate) type Language = [u8; 3];

/// Returns the language with these letters; `None` if they are not three letters, or the language is
/// undetermined.
pub(crate) fn language(letters: &[u8]) -> Option<Language> {
    let language = letters.first_chunk::<3>()?.map(|letter| letter.to_ascii_lowercase());
    let is_known = language != UNDETERMINED && language.iter().all(u8::is_ascii_lowercase);
    is_known.then_some(language)
}

/// Reads the first language of a stream. Reading stops at a truncated descriptor.
fn language_in(descriptors: &[u8]) -> Option<Language> {
    let mut reader = Reader::new(descriptors);
    while let (Ok(tag), Ok(length)) = (reader.u8(), reader.u8()) {
        let body = reader.take(usize::from(length)).ok()?;
        if tag == TAG_LANGUAGE {
            return language(body);
        }
    }
    None
}

/// Reads the closed captions of a stream. Reading stops at a truncated descriptor.
fn captions_in(descriptors: &[u8]) -> Option<Services> {
    let mut reader = Reader::new(descriptors);
    while let (Ok(tag), Ok(length)) = (reader.u8(), reader.u8()) {
        let body = reader.take(usize::from(length)).ok()?;
        if tag == TAG_CAPTION_SERVICE {
            return Some(Services::read(body)).filter(|services| *services != Services::NONE);
        }
    }
    None
}

/// A program map section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmt {
    /// program_number.
    pub program: u16,
    /// version_number.
    pub version: u8,
    /// PID that carries the program clock.
    pub pcr_pid: Pid,
    /// Streams of the program, each PID once.
    pub streams: Vec<Stream>,
    /// Number of streams left out, because there are too many or their PID is already in use.
    pub streams_left_out: usize,
    /// Closed captions of the streams that announce them.
    pub(crate) captions: Vec<(Pid, Services)>,
    /// Languages of the streams that announce one.
    pub(crate) languages: Vec<(Pid, Language)>,
}

impl Pmt {
    /// Returns the closed captions that the map announces within a stream.
    #[must_use]
    pub fn captions_of(&self, pid: Pid) -> Services {
        let of = self.captions.iter().find(|(of, _)| *of == pid);
        of.map_or(Services::NONE, |(_, services)| services.clone())
    }

    /// Returns the language of a stream, three letters of ISO 639-2, if the map has one.
    #[must_use]
    pub fn language_of(&self, pid: Pid) -> Option<&str> {
        let (_, language) = self.languages.iter().find(|(of, _)| *of == pid)?;
        core::str::from_utf8(language).ok()
    }

    /// Reads a section. Keeps at most `streams_max` of its streams.
    pub(crate) fn read(section: &Section<'_>, streams_max: usize) -> Result<Self, Error> {
        let mut reader = Reader::new(section.body);
        let pcr_pid = Pid::new(reader.u16()?);
        let info = reader.u16()? & 0x0fff;
        let is_of_cues = has_identifier(reader.take(usize::from(info))?, CUEI);
        let (mut streams, mut streams_left_out) = (Vec::<Stream>::new(), 0);
        let (mut languages, mut captions) = (Vec::new(), Vec::new());
        while !reader.is_empty() {
            let stream_type = reader.u8()?;
            let pid = Pid::new(reader.u16()?);
            let info = usize::from(reader.u16()? & 0x0fff);
            // If the list of descriptors exceeds the section, the descriptors are ignored, and this is the last
            // stream.
            let descriptors = match reader.take(info) {
                Ok(descriptors) => descriptors,
                Err(_) => {
                    reader.rest();
                    &[]
                }
            };
            let kind = StreamKind::read(stream_type, descriptors);
            // The registration should be among the program's descriptors (ANSI/SCTE 35 §8.1), but some encoders put it
            // among those of the stream.
            let is_splice = is_of_cues && kind == StreamKind::Other(0x86);
            let kind = if is_splice { StreamKind::Splice } else { kind };
            let taken = !pid.is_assignable() || streams.iter().any(|stream| stream.pid == pid);
            if taken || streams.len() >= streams_max {
                streams_left_out += 1;
            } else {
                streams.push(Stream { pid, kind });
                languages.extend(language_in(descriptors).map(|language| (pid, language)));
                captions.extend(captions_in(descriptors).map(|services| (pid, services)));
            }
        }
        Ok(Self {
            program: section.id,
            version: section.version,
            pcr_pid,
            streams,
            streams_left_out,
            captions,
            languages,
        })
    }

    /// Writes the section.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        let (mut body, mut descriptors) = (BytesMut::new(), BytesMut::new());
        body.put_u16(0xe000 | self.pcr_pid.get());
        if self.streams.iter().any(|stream| stream.kind == StreamKind::Id3) {
            descriptors.put_slice(&[TAG_METADATA_POINTER, 15]);
            put_id3_service(&mut descriptors);
            // No locator; the metadata is in this transport stream; reserved bits. Then the program number follows.
            descriptors.put_u8(0x1f);
            descriptors.put_u16(self.program);
        }
        if self.streams.iter().any(|stream| stream.kind == StreamKind::Splice) {
            descriptors.put_slice(&[TAG_REGISTRATION, 4]);
            descriptors.put_slice(CUEI);
        }
        body.put_u16(0xf000 | u16::try_from(descriptors.len()).unwrap_or(0));
        body.put_slice(&descriptors.split());
        for stream in &self.streams {
            stream.kind.write_descriptors(&mut descriptors);
            if let Some((_, language)) = self.languages.iter().find(|(pid, _)| *pid == stream.pid) {
                descriptors.put_slice(&[TAG_LANGUAGE, 4]);
                descriptors.put_slice(language);
                // audio_type: undefined.
                descriptors.put_u8(0);
            }
            body.put_u8(stream.kind.stream_type());
            body.put_u16(0xe000 | stream.pid.get());
            body.put_u16(0xf000 | u16::try_from(descriptors.len()).unwrap_or(0));
            body.put_slice(&descriptors.split());
        }
        let (id, version) = (self.program, self.version);
        Section { table_id: TABLE_PMT, id, version, current: true, number: 0, body: &body }.write(out);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn section(table_id: u8, body: &[u8]) -> Section<'_> {
        Section { table_id, id: 1, version: 0, current: true, number: 0, body }
    }

    #[test]
    fn t_04_lengths_over_the_map_are_refused() {
        let read = |body: &[u8]| Pmt::read(&section(TABLE_PMT, body), 16);
        let good = [0xe1, 0, 0xf0, 2, 9, 0, 0x1b, 0xe1, 0, 0xf0, 3, 0x0a, 1, 0];
        assert_eq!(read(&good).unwrap().streams, [Stream { pid: Pid::new(0x100), kind: StreamKind::H264 }]);
        for length in [200, 11] {
            let mut lies = good;
            lies[3] = length;
            assert!(read(&lies).is_err(), "{length}");
        }
        for length in [4, 255] {
            let mut lies = good;
            lies[10] = length;
            assert_eq!(read(&lies).unwrap().streams.len(), 1, "descriptors end with the map: {length}");
        }
        let ends: Vec<usize> = (0..good.len()).filter(|&end| read(&good[..end]).is_ok()).collect();
        assert_eq!(ends, [6, 11, 12, 13], "it may end between streams and in descriptors");
    }

    #[test]
    fn a_descriptor_of_a_wrong_length_voids_its_streams_descriptors_alone() {
        let body = |lengths: [u8; 2]| {
            let [first, second] = lengths;
            let ac3 = [0x06, 0xe1, 1, 0xf0, 6, 0x0a, first, 1, 0x6a, second, 0];
            [&[0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 3, 0x0a, first, 0][..], &ac3, &[0x0f, 0xe1, 2, 0xf0, 0]]
                .concat()
        };
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = body([first, second]);
                let pmt = Pmt::read(&section(TABLE_PMT, &bytes), 16).unwrap();
                let kinds: Vec<StreamKind> = pmt.streams.iter().map(|stream| stream.kind).collect();
                let private = if (first, second) == (1, 1) { StreamKind::Ac3 } else { kinds[1] };
                assert_eq!(kinds, [StreamKind::H264, private, StreamKind::AacAdts], "{first} {second}");
                if first > 4 || (first == 1 && second > 1) {
                    assert_eq!(private, StreamKind::Other(6), "{first} {second}");
                }
            }
        }
    }

    #[test]
    fn t_05_of_a_thousand_streams_sixteen_are_kept_and_a_pid_is_taken_once() {
        let mut body = vec![0xe1, 0, 0xf0, 0];
        for n in 0..200u16 {
            let [high, low] = (0x100 + n % 40).to_be_bytes();
            body.extend([0x0f, 0xe0 | high, low, 0xf0, 0]);
        }
        // Streams on the PIDs of the tables and of stuffing are also left out.
        body.extend([0x1b, 0xe0, 0, 0xf0, 0, 0x1b, 0xff, 0xff, 0xf0, 0]);
        let pmt = Pmt::read(&section(TABLE_PMT, &body), 16).unwrap();
        assert_eq!((pmt.streams.len(), pmt.streams_left_out), (16, 186));
        let mut pids: Vec<Pid> = pmt.streams.iter().map(|stream| stream.pid).collect();
        pids.dedup();
        assert_eq!(pids.len(), 16);

        let programs: Vec<u8> = (0..250u16).flat_map(|n| [0, u8::try_from(n).unwrap(), 0xe1, 0]).collect();
        let pat = Pat::read(&section(TABLE_PAT, &programs)).unwrap().unwrap();
        assert_eq!((pat.program, pat.pmt_pid), (1, Pid::new(0x100)));
        assert!(Pat::read(&section(TABLE_PAT, &programs[..7])).is_err());
        assert_eq!(Pat::read(&section(TABLE_PAT, &programs[..4])), Ok(None));
    }

    #[test]
    fn every_kind_is_announced_so_that_it_is_known_again() {
        let kinds = [
            StreamKind::H264,
            StreamKind::H265,
            StreamKind::AacAdts,
            StreamKind::AacLatm,
            StreamKind::MpegAudio { mpeg2: false },
            StreamKind::MpegAudio { mpeg2: true },
            StreamKind::Ac3,
            StreamKind::Eac3,
            StreamKind::Opus { channels: 6 },
            StreamKind::Id3,
            StreamKind::Splice,
            StreamKind::Other(0x85),
        ];
        let streams = kinds.iter().zip(0x100..).map(|(&kind, pid)| Stream { pid: Pid::new(pid), kind });
        let pmt = Pmt {
            program: 1,
            version: 5,
            pcr_pid: Pid::new(0x100),
            streams: streams.collect(),
            streams_left_out: 0,
            captions: Vec::new(),
            languages: vec![(Pid::new(0x102), *b"deu"), (Pid::new(0x108), *b"eng")],
        };
        let mut out = BytesMut::new();
        pmt.write(&mut out);
        let mut assembler = crate::section::Assembler::default();
        let mut read = None;
        let payload = [&[0], &out[..]].concat();
        assembler.push(0, true, &payload, |result| read = Some(Pmt::read(&result.unwrap(), 16)));
        assert_eq!(read.as_ref(), Some(&Ok(pmt)));
        let read = read.unwrap().unwrap();
        assert_eq!(
            (read.language_of(Pid::new(0x108)), read.language_of(Pid::new(0x100))),
            (Some("eng"), None)
        );
    }

    #[test]
    fn languages_are_three_letters_that_mean_one() {
        let read = |descriptors: &[u8]| language_in(descriptors);
        assert_eq!(read(b"\x05\x04CUEI\x0a\x08DEU\0eng\0"), Some(*b"deu"), "the first one");
        for none in
            [&b"\x0a\x04und\0"[..], b"\x0a\x04e1g\0", b"\x0a\x04en", b"\x0a\x02en", b"\x0a\x00", b"\x0a"]
        {
            assert_eq!(read(none), None, "{none:?}");
        }
    }

    #[test]
    fn closed_captions_are_those_of_the_first_descriptor() {
        // A video with a language and two caption services.
        let descriptors = b"\x0a\x04deu\0\x86\x0d\xe2eng\x81\x3f\xffspa\x7e\x3f\xff";
        let length = u8::try_from(descriptors.len()).unwrap();
        let body = [&[0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, length][..], descriptors].concat();
        let pmt = Pmt::read(&section(TABLE_PMT, &body), 16).unwrap();
        let services = pmt.captions_of(Pid::new(0x100));
        let told: Vec<_> =
            services.iter().map(|(channel, language)| (channel.to_string(), language)).collect();
        assert_eq!(told, [("CC1".to_owned(), Some("spa")), ("SERVICE1".to_owned(), Some("eng"))]);
        assert_eq!(pmt.captions_of(Pid::new(0x101)), Services::NONE);
        assert_eq!(captions_in(b"\x86\x0d\xe2eng\x81"), None, "it is cut off");
    }

    #[test]
    fn metadata_is_of_tags_unless_its_descriptors_say_otherwise() {
        let kind = |descriptors: &[u8]| StreamKind::read(0x15, descriptors);
        assert_eq!(kind(b""), StreamKind::Id3);
        assert_eq!(kind(b"\x26\x0d\xff\xffID3 \xffID3 \x00\x0f"), StreamKind::Id3);
        assert_eq!(kind(b"\x26\x09\x01\x00\xffKLVA\x00\x0f"), StreamKind::Other(0x15));
        assert_eq!(kind(b"\x05\x04KLVA"), StreamKind::Other(0x15));
        assert_eq!(kind(b"\x26\xff\x01"), StreamKind::Id3, "a descriptor that is cut off says nothing");
    }

    #[test]
    fn splice_information_is_registered_with_the_program_or_the_stream() {
        let kinds = |program: &[u8], stream: &[u8]| {
            let length = |bytes: &[u8]| [0xf0, u8::try_from(bytes.len()).unwrap()];
            let head = [&[0xe1, 0][..], &length(program), program].concat();
            let body = [&head[..], &[0x86, 0xe1, 5], &length(stream), stream].concat();
            Pmt::read(&section(TABLE_PMT, &body), 16).unwrap().streams[0].kind
        };
        assert_eq!(kinds(b"\x05\x04CUEI", b""), StreamKind::Splice);
        assert_eq!(kinds(b"\x05\x04HDMV", b"\x8a\x01\x01\x05\x04CUEI"), StreamKind::Splice);
        assert_eq!(kinds(b"\x05\x04HDMV", b""), StreamKind::Other(0x86));
        assert_eq!(kinds(b"\x05\x09CUEI", b"\x05\x04CUE"), StreamKind::Other(0x86), "cut off");
    }

    #[test]
    fn private_data_is_what_its_descriptors_say() {
        let kind = |descriptors: &[u8]| StreamKind::read(6, descriptors);
        assert_eq!(kind(&[0x6a, 1, 0]), StreamKind::Ac3);
        assert_eq!(kind(&[0x0a, 4, b'e', b'n', b'g', 0, 0x7a, 1, 0]), StreamKind::Eac3);
        assert_eq!(kind(b"\x05\x04Opus\x7f\x02\x80\x01"), StreamKind::Opus { channels: 1 });
        assert_eq!(kind(b"\x7f\x02\x80\x06\x05\x04Opus"), StreamKind::Opus { channels: 6 });
        assert_eq!(kind(b"\x05\x04KLVA"), StreamKind::Other(6));
        assert_eq!(kind(b"\x05\x04ID3 "), StreamKind::Id3);
        assert_eq!(kind(b"\x56\x05eng\x10\x00"), StreamKind::Other(6));
    }
}
