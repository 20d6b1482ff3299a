//! The publishers' media: a clip that is read once and looped by each publisher, with continuous timestamps.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use flv::file::{Reader, TagKind};

use super::Stamp;

/// 8 s of H.264 640x360 at 30 frames a second, a key frame every 2 s, and AAC of 128 kb/s; made with
/// `ffmpeg -f lavfi -i testsrc=size=640x360:rate=30:duration=8 -f lavfi -i anoisesrc=color=pink:amplitude=0.3:sample_rate=48000:duration=8:seed=1
/// -c:v libx264 -profile:v main -preset veryslow -x264-params keyint=60:min-keyint=60:scenecut=0:bframes=0:ref=1 -b:v 55k
/// -maxrate 65k -bufsize 130k -pix_fmt yuv420p -c:a aac -b:a 128k -ac 2 -map_metadata -1 -fflags +bitexact sample.flv`.
pub const SAMPLE: &[u8] = include_bytes!("sample.flv");

/// Ratio of the size of padded key frames to that of other padded video frames.
const KEY_FACTOR: u64 = 8;
/// Largest tag in a clip, in bytes.
const TAG_BYTES_MAX: u32 = 8 << 20;
/// FLV 10.1 §E.4.3.1: codec id of AVC, and number of bytes before the NAL units.
const AVC: u8 = 7;
const AVC_HEAD_BYTES: usize = 5;
/// FLV 10.1 §E.4.2: sound format of AAC, and number of bytes before the raw data block.
const AAC: u8 = 10;
const AAC_HEAD_BYTES: usize = 2;
/// The bit that marks video bodies of Enhanced RTMP, and the sound format that marks its audio bodies.
const EX_VIDEO: u8 = 0x80;
const EX_AUDIO: u8 = 9;
/// Enhanced RTMP (veovera, §Enhanced Audio): first bytes of a sequence start and of coded frames, and the FourCC of
/// Opus.
const EX_AUDIO_START: u8 = EX_AUDIO << 4;
const EX_AUDIO_FRAMES: u8 = EX_AUDIO << 4 | 1;
const OPUS: &[u8] = b"Opus";
/// The identification header of Opus (RFC 7845 §5.1): version 1, one channel, no pre-skip, 48 kHz, no gain, mapping
/// family 0.
const OPUS_CONFIG: &[u8] = b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0";
/// A packet with one fullband CELT frame of 20 ms and `OPUS_PADDING` bytes of padding; the frame is silent (RFC 6716
/// §3.1, §3.2.5).
const OPUS_HEAD: [u8; 5] = [0xfb, 0x41, OPUS_PADDING, 0xff, 0xfe];
const OPUS_PADDING: u8 = 75;
const OPUS_MS: usize = 20;
/// NAL unit types (H.264 Table 7-1).
const ACCESS_UNIT_DELIMITER: u8 = 9;

/// Reasons why a file is not usable as a clip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClipError {
    /// The file is not FLV, or is damaged.
    #[error("{0}")]
    Flv(#[from] flv::Error),
    /// The file has no media to send.
    #[error("the file has neither audio nor video")]
    Empty,
    /// A bit rate was requested, but the clip is not H.264.
    #[error("only H.264 can be padded to a bit rate")]
    NotPaddable,
}

/// The place of a unit's stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// The stamp is in an SEI, at this offset of the body.
    Sei(usize),
    /// The stamp is in a data stream element of AAC.
    AacElement,
    /// The stamp is in a data message before the unit.
    Message,
    /// The unit has no stamp, because the video carries the stamps.
    None,
}

#[derive(Debug)]
struct Piece {
    is_video: bool,
    key_frame: bool,
    dts_ms: u64,
    carrier: Carrier,
    body: Bytes,
}

/// Target sizes of padded video frames.
#[derive(Debug, Clone)]
struct Padding {
    inter_bytes: u64,
    /// Filler bytes, enough for the largest frame.
    ones: Bytes,
    /// Number of NAL units that the filler is divided into.
    slices: usize,
}

/// A parsed clip.
#[derive(Debug)]
pub struct Clip {
    heads: Vec<(TagKind, Bytes)>,
    pieces: Vec<Piece>,
    period_ms: u64,
    padding: Option<Padding>,
}

/// A unit to send: the body of a tag or a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Kind of the tag.
    pub kind: TagKind,
    /// True if the unit is a key frame.
    pub key_frame: bool,
    /// Decode time from the start of the first loop.
    pub dts_ms: u64,
    /// Contents of the unit.
    pub body: Bytes,
    /// Data message to send directly before the unit.
    pub message: Option<Bytes>,
}

impl Unit {
    /// True if the unit is video.
    #[must_use]
    pub fn is_video(&self) -> bool {
        self.kind == TagKind::Video
    }
}

impl Clip {
    /// Parses an FLV file.
    ///
    /// # Errors
    /// The reason why the file cannot be published.
    pub fn read(file: &[u8]) -> Result<Self, ClipError> {
        let mut reader = Reader::new(TAG_BYTES_MAX);
        reader.push(file);
        let (mut heads, mut pieces) = (Vec::new(), Vec::new());
        let mut four_byte_lengths = false;
        while let Some(tag) = reader.poll_tag()? {
            let is_video = match tag.kind {
                TagKind::Video => true,
                TagKind::Audio => false,
                TagKind::Data => {
                    // Only the first metadata of the file is kept.
                    if heads.iter().all(|(kind, _)| *kind != TagKind::Data) {
                        heads.push((tag.kind, flv::data::wrap(&flv::data::unwrap(&tag.body))));
                    }
                    continue;
                }
                TagKind::Other(_) => continue,
            };
            match shape(is_video, &tag.body) {
                Shape::Head => {
                    if is_video {
                        // lengthSizeMinusOne (ISO/IEC 14496-15 §5.3.3.1.2).
                        four_byte_lengths = tag.body.get(9).is_some_and(|byte| byte & 3 == 3);
                    }
                    if !heads.contains(&(tag.kind, tag.body.clone())) {
                        heads.push((tag.kind, tag.body));
                    }
                }
                Shape::Unit { key_frame, carrier } => {
                    let carrier = match carrier {
                        Carrier::Sei(_) if !four_byte_lengths => Carrier::Message,
                        Carrier::Sei(_) | Carrier::AacElement | Carrier::Message | Carrier::None => carrier,
                    };
                    let dts_ms = u64::from(tag.timestamp);
                    pieces.push(Piece { is_video, key_frame, dts_ms, carrier, body: tag.body });
                }
                Shape::Nothing => {}
            }
        }
        Self::of(heads, pieces)
    }

    fn of(heads: Vec<(TagKind, Bytes)>, mut pieces: Vec<Piece>) -> Result<Self, ClipError> {
        // A clip that was cut from a stream is trimmed to begin with its first key frame.
        if let Some(first) = pieces.iter().position(|piece| piece.is_video && piece.key_frame) {
            let at = pieces.get(first).map_or(0, |piece| piece.dts_ms);
            let mut seen = false;
            pieces.retain(|piece| {
                seen |= piece.is_video && piece.key_frame;
                seen || (!piece.is_video && piece.dts_ms >= at)
            });
        }
        pieces.sort_by_key(|piece| piece.dts_ms);
        let base = pieces.first().ok_or(ClipError::Empty)?.dts_ms;
        let has_video = pieces.iter().any(|piece| piece.is_video);
        for piece in &mut pieces {
            piece.dts_ms -= base;
            if !piece.is_video && has_video && piece.carrier == Carrier::Message {
                piece.carrier = Carrier::None;
            }
        }
        let period_ms = period_ms(&pieces, has_video);
        pieces.retain(|piece| piece.dts_ms < period_ms);
        Ok(Self { heads, pieces, period_ms, padding: None })
    }

    /// Replaces the audio with Opus (20 ms frames, 32 kb/s), for which WebRTC publishers can send audio levels.
    #[must_use]
    pub fn with_opus(mut self) -> Self {
        let frame: Bytes =
            [&[EX_AUDIO_FRAMES], OPUS, &OPUS_HEAD, &[0; OPUS_PADDING as usize]].concat().into();
        let piece = |dts_ms| Piece {
            is_video: false,
            key_frame: false,
            dts_ms,
            carrier: Carrier::None,
            body: frame.clone(),
        };
        self.heads.retain(|(kind, _)| *kind != TagKind::Audio);
        let start: Bytes = [&[EX_AUDIO_START], OPUS, OPUS_CONFIG].concat().into();
        self.heads.push((TagKind::Audio, start));
        self.pieces.retain(|piece| piece.is_video);
        let times = (0..self.period_ms).step_by(OPUS_MS);
        self.pieces.extend(times.map(piece));
        // A key frame must remain the first unit.
        self.pieces.sort_by_key(|piece| (piece.dts_ms, !piece.is_video));
        self
    }

    /// Pads video frames so that the whole stream, including stamps and audio, reaches this rate.
    ///
    /// # Errors
    /// The video is not H.264.
    pub fn padded(mut self, bits_per_second: u64) -> Result<Self, ClipError> {
        let is_paddable = |piece: &Piece| matches!(piece.carrier, Carrier::Sei(_));
        if !self.pieces.iter().any(is_paddable) {
            return Err(ClipError::NotPaddable);
        }
        let stamp = Stamp { sequence: 0, unix_nanos: 0 }.aac_element().len();
        let audio: usize =
            self.pieces.iter().filter(|piece| !piece.is_video).map(|piece| piece.body.len() + stamp).sum();
        let wanted = bits_per_second.saturating_mul(self.period_ms) / 8000;
        let video = wanted.saturating_sub(u64::try_from(audio).unwrap_or(u64::MAX));
        let parts: u64 = self
            .pieces
            .iter()
            .filter(|piece| is_paddable(piece))
            .map(|piece| if piece.key_frame { KEY_FACTOR } else { 1 })
            .sum();
        let inter_bytes = video.checked_div(parts).unwrap_or(0);
        let largest = usize::try_from(inter_bytes * KEY_FACTOR * 2).unwrap_or(0);
        self.padding = Some(Padding { inter_bytes, ones: vec![0xff; largest].into(), slices: 1 });
        Ok(self)
    }

    /// Divides the padding of each picture into this number of NAL units of different sizes, as if they were slices.
    #[must_use]
    pub fn sliced(mut self, slices: usize) -> Self {
        if let Some(padding) = &mut self.padding {
            padding.slices = slices.max(1);
        }
        self
    }

    /// Returns metadata and parameter sets, which are sent first; the metadata is wrapped as publishers send it to
    /// servers.
    #[must_use]
    pub fn heads(&self) -> &[(TagKind, Bytes)] {
        &self.heads
    }

    /// Returns the duration of one loop.
    #[must_use]
    pub const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Returns the time between key frames, or the whole loop if there is only one.
    #[must_use]
    pub fn gop_ms(&self) -> u64 {
        let keys = self.pieces.iter().filter(|piece| piece.is_video && piece.key_frame).count();
        self.period_ms.checked_div(u64::try_from(keys).unwrap_or(1)).unwrap_or(self.period_ms)
    }
}

enum Shape {
    /// Parameter sets.
    Head,
    Unit {
        key_frame: bool,
        carrier: Carrier,
    },
    Nothing,
}

/// Classifies a body by its first bytes only, so that unknown codecs work, too.
fn shape(is_video: bool, body: &Bytes) -> Shape {
    let (Some(&first), packet) = (body.first(), body.get(1).copied()) else { return Shape::Nothing };
    if is_video {
        // Frame type 1 is a key frame. Enhanced RTMP has the frame type in bits 4 to 6, and the packet type
        // in bits 0 to 3.
        let key_frame = (first >> 4) & 7 == 1;
        return match (first & EX_VIDEO != 0, first & 0x0f, packet) {
            (true, 0, _) | (false, AVC, Some(0)) => Shape::Head,
            (true, 2 | 4, _) | (false, AVC, Some(2) | None) => Shape::Nothing,
            (false, AVC, Some(_)) => Shape::Unit { key_frame, carrier: Carrier::Sei(stamp_offset(body)) },
            _ => Shape::Unit { key_frame, carrier: Carrier::Message },
        };
    }
    match (first >> 4, first & 0x0f, packet) {
        (AAC, _, Some(0)) | (EX_AUDIO, 0, _) => Shape::Head,
        (AAC, _, Some(_)) => Shape::Unit { key_frame: false, carrier: Carrier::AacElement },
        (AAC, _, None) | (EX_AUDIO, 2 | 4, _) => Shape::Nothing,
        _ => Shape::Unit { key_frame: false, carrier: Carrier::Message },
    }
}

/// Returns the offset for a stamp. An access unit delimiter must stay the first NAL unit (H.264 §7.4.1.2.3).
fn stamp_offset(body: &[u8]) -> usize {
    let nals = body.get(AVC_HEAD_BYTES..).unwrap_or_default();
    match media::nal::Nals::new(nals, 4).next() {
        Some(Ok(nal)) if nal.first().is_some_and(|head| head & 0x1f == ACCESS_UNIT_DELIMITER) => {
            AVC_HEAD_BYTES + 4 + nal.len()
        }
        Some(_) | None => AVC_HEAD_BYTES,
    }
}

/// Returns the duration of the video (or audio, if there is no video), plus one interval.
fn period_ms(pieces: &[Piece], has_video: bool) -> u64 {
    let times = || pieces.iter().filter(|piece| piece.is_video == has_video).map(|piece| piece.dts_ms);
    let (first, last) = (times().next().unwrap_or(0), times().next_back().unwrap_or(0));
    let span = last.saturating_sub(first);
    let intervals = u64::try_from(times().count()).unwrap_or(1).saturating_sub(1);
    let interval = (span + intervals / 2).checked_div(intervals).unwrap_or(40);
    (span + interval).max(1)
}

/// A publisher's position in a clip.
#[derive(Debug, Clone)]
pub struct Source {
    clip: Arc<Clip>,
    next: usize,
    base_ms: u64,
    video: u64,
    audio: u64,
    /// Number of the first unit.
    first: u64,
    /// Surplus bytes of video frames that were larger than their target.
    excess: u64,
    /// Two flags, for video and for audio: true if the kind is not sent.
    left_out: [bool; 2],
}

impl Source {
    /// Creates a source that begins at the start of the clip.
    #[must_use]
    pub const fn new(clip: Arc<Clip>) -> Self {
        Self { clip, next: 0, base_ms: 0, video: 0, audio: 0, first: 0, excess: 0, left_out: [false; 2] }
    }

    /// Numbers the units so that their stamps name this participant.
    #[must_use]
    pub fn of_participant(mut self, participant: usize) -> Self {
        self.first = Stamp::first_of(participant);
        self
    }

    /// Continues with the clip's first unit, a key frame.
    pub fn restart(&mut self) {
        (self.base_ms, self.next) = (self.due_ms(), 0);
        self.pass_over();
    }

    /// Leaves out video or audio if the argument for it is false.
    #[must_use]
    pub fn carrying(mut self, video: bool, audio: bool) -> Self {
        self.left_out = [!video, !audio];
        self.pass_over();
        self
    }

    /// Returns the clip.
    #[must_use]
    pub fn clip(&self) -> &Clip {
        &self.clip
    }

    /// Returns the time at which the next unit is due, from the start of the first loop.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.base_ms + self.clip.pieces.get(self.next).map_or(0, |piece| piece.dts_ms)
    }

    /// Returns the numbers of video and audio units made so far.
    #[must_use]
    pub const fn made(&self) -> [u64; 2] {
        [self.video, self.audio]
    }

    /// Makes the next unit, stamped with this time. Never returns `None`, since a clip is not empty.
    pub fn next_unit(&mut self, unix_nanos: u64) -> Option<Unit> {
        let (clip, dts_ms) = (Arc::clone(&self.clip), self.due_ms());
        let piece = clip.pieces.get(self.next)?;
        self.advance();
        self.pass_over();
        let counter = if piece.is_video { &mut self.video } else { &mut self.audio };
        let stamp = Stamp { sequence: self.first + *counter, unix_nanos };
        *counter += 1;
        let kind = if piece.is_video { TagKind::Video } else { TagKind::Audio };
        let (body, message) = match piece.carrier {
            Carrier::Sei(at) => (self.video_body(piece, at, stamp), None),
            Carrier::AacElement => (with(&piece.body, AAC_HEAD_BYTES, &stamp.aac_element()).freeze(), None),
            Carrier::Message => (piece.body.clone(), Some(stamp.message())),
            Carrier::None => (piece.body.clone(), None),
        };
        Some(Unit { kind, key_frame: piece.key_frame, dts_ms, body, message })
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next >= self.clip.pieces.len() {
            self.next = 0;
            self.base_ms += self.clip.period_ms;
        }
    }

    /// Advances to the next unit that is sent; does nothing if the clip has no such unit.
    fn pass_over(&mut self) {
        let [video, audio] = self.left_out;
        let is_carried = |piece: &Piece| !if piece.is_video { video } else { audio };
        if self.clip.pieces.iter().any(is_carried) {
            while self.clip.pieces.get(self.next).is_some_and(|piece| !is_carried(piece)) {
                self.advance();
            }
        }
    }

    fn video_body(&mut self, piece: &Piece, at: usize, stamp: Stamp) -> Bytes {
        let Some(padding) = &self.clip.padding else { return with(&piece.body, at, &stamp.sei()).into() };
        // Sizes vary by up to half of the mean.
        let mean = padding.inter_bytes * if piece.key_frame { KEY_FACTOR } else { 1 };
        let wanted = mean / 2 + mean * (stamp.sequence * 37 % 101) / 100;
        let has = u64::try_from(piece.body.len() + stamp.sei().len()).unwrap_or(0);
        let wanted_now = wanted.saturating_sub(self.excess);
        let missing = usize::try_from(wanted_now.saturating_sub(has)).unwrap_or(0);
        // Sizes of slices vary by up to 30 % of their mean.
        let sequence = usize::try_from(stamp.sequence % 1000).unwrap_or(0);
        let share = |slice: usize| match padding.slices {
            1 => missing,
            slices => missing / slices * (70 + (sequence * 31 + slice * 47) % 61) / 100,
        };
        let nals = (0..padding.slices).map(|slice| stamp.padded_sei(share(slice), &padding.ones));
        let body = with(&piece.body, at, &nals.collect::<Vec<_>>().concat());
        self.excess = (self.excess + body.len() as u64).saturating_sub(wanted);
        body.into()
    }
}

/// Inserts `more` into `body` at `at`.
fn with(body: &[u8], at: usize, more: &[u8]) -> BytesMut {
    let (before, behind) = body.split_at_checked(at).unwrap_or((body, &[]));
    let mut out = BytesMut::with_capacity(body.len() + more.len());
    out.put_slice(before);
    out.put_slice(more);
    out.put_slice(behind);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::nal::Nals;

    fn sample() -> Clip {
        Clip::read(SAMPLE).unwrap()
    }

    fn bits_per_second(clip: Clip, loops: u64) -> u64 {
        let period = clip.period_ms();
        let mut source = Source::new(Arc::new(clip));
        let mut bytes = 0;
        while source.due_ms() < loops * period {
            bytes += source.next_unit(1).unwrap().body.len() as u64;
        }
        bytes * 8000 / (loops * period)
    }

    #[test]
    fn the_sample_is_what_the_docs_say() {
        let clip = sample();
        assert_eq!((clip.period_ms(), clip.gop_ms()), (8000, 2000));
        let kinds: Vec<TagKind> = clip.heads().iter().map(|(kind, _)| *kind).collect();
        assert!(kinds.contains(&TagKind::Video) && kinds.contains(&TagKind::Audio));
        let video = clip.pieces.iter().filter(|piece| piece.is_video).count();
        assert_eq!((video, clip.pieces.len() - video), (240, 375));
        assert!(SAMPLE.len() < 200_000);
    }

    #[test]
    fn times_and_numbers_go_on_through_the_loops() {
        let mut source = Source::new(Arc::new(sample()));
        let (mut last, mut next) = (0, [0, 0]);
        for _ in 0..3000 {
            let due = source.due_ms();
            let unit = source.next_unit(9).unwrap();
            assert!(unit.dts_ms == due && due >= last && due - last <= 40, "{due} after {last}");
            last = due;
            let stamp = match unit.is_video() {
                true => Stamp::in_nals(&unit.body[AVC_HEAD_BYTES..]),
                false => Stamp::in_aac(&unit.body[AAC_HEAD_BYTES..]),
            };
            let next = &mut next[usize::from(!unit.is_video())];
            assert_eq!(stamp, Some(Stamp { sequence: *next, unix_nanos: 9 }));
            *next += 1;
        }
        assert_eq!(source.made(), next);
    }

    #[test]
    fn what_is_left_out_is_neither_sent_nor_numbered() {
        let mut source = Source::new(Arc::new(sample())).carrying(true, false);
        let units: Vec<Unit> = (0..300).map(|_| source.next_unit(9).unwrap()).collect();
        assert!(units.iter().all(Unit::is_video));
        assert_eq!((source.made(), units[299].dts_ms), ([300, 0], 9967));
        let mut audio = Source::new(Arc::new(sample())).carrying(false, true);
        assert!(!audio.next_unit(9).unwrap().is_video());
        assert!(Source::new(Arc::new(sample())).carrying(false, false).next_unit(9).is_some());
    }

    #[test]
    fn padding_gives_the_rate_in_whole_nal_units() {
        for rate in [300_000, 2_500_000, 20_000_000] {
            let got = bits_per_second(sample().padded(rate).unwrap(), 13);
            assert!(got.abs_diff(rate) < rate / 50, "{got} for {rate}");
        }
        let mut source = Source::new(Arc::new(sample().padded(2_500_000).unwrap()));
        for _ in 0..500 {
            let unit = source.next_unit(1).unwrap();
            if unit.is_video() {
                let nals: Result<Vec<_>, _> = Nals::new(&unit.body[AVC_HEAD_BYTES..], 4).collect();
                let kinds: Vec<u8> = nals.unwrap().iter().map(|nal| nal[0] & 0x1f).collect();
                assert_eq!(kinds[0], 6, "the stamp, and what pads");
                assert!(kinds.last().is_some_and(|kind| matches!(kind, 1 | 5)), "and the slices behind");
                assert!(Stamp::in_nals(&unit.body[AVC_HEAD_BYTES..]).is_some());
            }
        }
    }

    #[test]
    fn what_cannot_take_a_stamp_gets_a_message() {
        let piece = |is_video, dts_ms, body: &'static [u8]| {
            let body = Bytes::from_static(body);
            let Shape::Unit { key_frame, carrier } = shape(is_video, &body) else { panic!() };
            Piece { is_video, key_frame, dts_ms, carrier, body }
        };
        // Enhanced RTMP: HEVC coded frames, and Opus.
        let pieces = vec![piece(true, 0, b"\x91hvc1..."), piece(false, 3, b"\x91Opus...")];
        let mut source = Source::new(Arc::new(Clip::of(Vec::new(), pieces).unwrap()));
        let (video, audio) = (source.next_unit(5).unwrap(), source.next_unit(6).unwrap());
        let stamp = Stamp { sequence: 0, unix_nanos: 5 };
        assert_eq!(video.message.as_deref().and_then(Stamp::in_message), Some(stamp));
        assert!(video.key_frame && audio.message.is_none());
        let only = Clip::of(Vec::new(), vec![piece(false, 0, b"\x91Opus...")]).unwrap();
        assert!(Source::new(Arc::new(only)).next_unit(5).unwrap().message.is_some());
    }

    #[test]
    fn what_is_no_clip_is_told() {
        assert!(matches!(Clip::read(b"GET / HTTP/1.1"), Err(ClipError::Flv(_))));
        assert_eq!(Clip::read(&SAMPLE[..13]).map(|clip| clip.period_ms), Err(ClipError::Empty));
        let audio = vec![Piece {
            is_video: false,
            key_frame: false,
            dts_ms: 0,
            carrier: Carrier::AacElement,
            body: Bytes::from_static(b"\xaf\x01x"),
        }];
        assert_eq!(
            Clip::of(Vec::new(), audio).unwrap().padded(1).map(|clip| clip.period_ms),
            Err(ClipError::NotPaddable)
        );
    }

    #[test]
    fn a_padded_picture_is_divided_into_slices_of_unlike_sizes() {
        let lengths = |slices| {
            let clip = Clip::read(SAMPLE).unwrap().padded(2_500_000).unwrap().sliced(slices);
            let mut source = Source::new(Arc::new(clip)).carrying(true, false);
            let unit = std::iter::from_fn(|| source.next_unit(0)).nth(10).unwrap();
            let nals = Nals::new(&unit.body[AVC_HEAD_BYTES..], 4).map(|nal| nal.unwrap().len());
            (nals.collect::<Vec<usize>>(), Stamp::in_nals(&unit.body[AVC_HEAD_BYTES..]).map(|of| of.sequence))
        };
        let ((one, first), (four, second)) = (lengths(1), lengths(4));
        assert_eq!((four.len(), first, second), (one.len() + 3, Some(10), Some(10)));
        let (whole, parts): (usize, usize) = (one.iter().sum(), four.iter().sum());
        assert!(whole.abs_diff(parts) < whole / 5, "{one:?} {four:?}");
        assert!(four[..4].windows(2).all(|two| two[0].abs_diff(two[1]) > 50), "{four:?}");
    }
}
