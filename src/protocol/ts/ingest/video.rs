//! Converts PES packets of H.264 and H.265 to access units with 4-byte lengths.
//!
//! Most encoders put each access unit into a PES packet of its own, which is converted when complete. Two other cases
//! are supported. First, several access units in one packet are separated at delimiters and first slices, and share the
//! packet's times. H.264 that may have fields is not separated, because the two fields of a frame look like two
//! pictures. Second, an access unit in several packets is reassembled if only the first packet has a time. This
//! requires waiting for the next packet, so it is done only for packets of nearly 64 KiB, the maximum of a packet's
//! length field, and for streams that were seen to split smaller packets; the first such picture of a stream is lost.

use bytes::{Bytes, BytesMut};
use media::codec::{h264, h265};
use media::{Unwrap, nal};
use mpegts::{CLOCK_BITS, CLOCK_MASK, PES_BYTES_MAX, Pes, Stream, StreamKind};

use super::{Frame, Made};
use crate::protocol::decode_order::DecodeOrder;
use crate::protocol::parameter_sets::{Coding, SET_ID_MAX, Sets};

/// Maximum number of access units of one PES packet.
const PICTURES_MAX: usize = 64;
/// Minimum size of a packet that may be split only because of the length limit.
const CUT_BYTES: usize = 60_000;
/// Ticks between pictures until two have been seen: 25 per second.
const STEP_DEFAULT: u64 = 3600;
/// Distance of two pictures, in ticks, above which it counts as a pause: 1 s.
const STEP_MAX: u64 = 90_000;
/// Maximum size of a parameter set.
const SET_BYTES_MAX: usize = media::codec::CONFIG_BYTES_MAX;

/// The role of a NAL unit in an access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Delimiter: begins an access unit, and is dropped.
    Delimiter,
    /// Filler and meaningless units, which are dropped.
    Filler,
    /// Parameter set: kept separately.
    Set,
    /// A NAL unit that may precede the slices of its picture, and then begins an access unit.
    Before { recovery: bool },
    /// A slice of a picture.
    Slice { begins: bool, key: bool },
    /// Any other NAL unit.
    Other,
}

impl Coding {
    /// True if a NAL unit is of a type reserved for other uses (H.264 types 0, 30 and 31, on which decoders differ), or
    /// has no content although its type requires some.
    fn is_void(self, nal: &[u8]) -> bool {
        match self {
            Self::H264 => match h264::nal_type(nal) {
                0 | 30 | 31 => true,
                // An end of sequence and an end of stream have no content.
                10 | 11 => false,
                _ => nal.len() < 2,
            },
            // An end of sequence and an end of bitstream have no content.
            Self::H265 => nal.len() < 2 || (nal.len() < 3 && !matches!(h265::nal_type(nal), Some(36 | 37))),
        }
    }

    fn role(self, nal: &[u8]) -> Role {
        if self.is_void(nal) {
            return Role::Filler;
        }
        match self {
            Self::H264 => match h264::nal_type(nal) {
                h264::NAL_AUD => Role::Delimiter,
                h264::NAL_FILLER => Role::Filler,
                h264::NAL_SPS | h264::NAL_PPS => Role::Set,
                h264::NAL_SEI => Role::Before { recovery: h264::is_recovery_point(nal) },
                _ if h264::is_picture(nal) => Role::Slice {
                    begins: h264::begins_picture(nal),
                    key: h264::nal_type(nal) == h264::NAL_IDR,
                },
                _ => Role::Other,
            },
            Self::H265 => match h265::nal_type(nal).unwrap_or(u8::MAX) {
                h265::NAL_AUD => Role::Delimiter,
                h265::NAL_FILLER => Role::Filler,
                h265::NAL_VPS..=h265::NAL_PPS => Role::Set,
                // This type is the prefix SEI. The suffix SEI has another NAL unit type and never begins an access
                // unit.
                h265::NAL_SEI => Role::Before { recovery: false },
                _ if h265::is_picture(nal) => {
                    Role::Slice { begins: h265::begins_picture(nal), key: h265::is_key(nal) }
                }
                _ => Role::Other,
            },
        }
    }
}

/// An access unit being assembled.
#[derive(Debug, Default)]
struct Picture {
    payload: BytesMut,
    has_slice: bool,
    has_sets: bool,
    key: bool,
    recovery: bool,
}

/// A PES packet that may continue in the next one.
#[derive(Debug)]
struct Held {
    first: Pes,
    payload: BytesMut,
}

/// A video stream.
#[derive(Debug)]
pub(super) struct Video {
    stream: Stream,
    coding: Coding,
    sets: Sets,
    sets_changed: bool,
    configured: bool,
    /// True if no picture of the stream is a field.
    frames_only: bool,
    held: Option<Held>,
    /// True if the stream was seen to split access units into several packets.
    cuts: bool,
    /// DTS of the last packet's first picture, and its number of pictures.
    last: Option<(u64, u64)>,
    step: u64,
    /// True if some packet had a DTS; packets without one then have DTS equal to PTS (ISO/IEC 13818-1 §2.4.3.7).
    has_dts: bool,
    /// Decode times for a stream without DTS.
    order: DecodeOrder,
    unwrap: Unwrap,
}

impl Video {
    /// Makes the reader of a stream; `None` if it is not video.
    pub(super) fn new(stream: Stream) -> Option<Self> {
        let coding = match stream.kind {
            StreamKind::H264 => Coding::H264,
            StreamKind::H265 => Coding::H265,
            StreamKind::AacAdts
            | StreamKind::AacLatm
            | StreamKind::MpegAudio { .. }
            | StreamKind::Ac3
            | StreamKind::Eac3
            | StreamKind::Opus { .. }
            | StreamKind::Id3
            | StreamKind::Splice
            | StreamKind::Other(_) => return None,
        };
        Some(Self {
            stream,
            coding,
            sets: Sets::new(),
            sets_changed: false,
            configured: false,
            frames_only: coding == Coding::H265,
            held: None,
            cuts: false,
            last: None,
            step: STEP_DEFAULT,
            has_dts: false,
            order: DecodeOrder::default(),
            unwrap: Unwrap::new(CLOCK_BITS),
        })
    }

    pub(super) const fn stream(&self) -> Stream {
        self.stream
    }

    /// Takes a PES packet.
    pub(super) fn push(&mut self, pes: Pes, made: &mut Vec<Made>) {
        if pes.discontinuity {
            self.finish(made);
        }
        let goes_on = pes.pts.is_none() && !self.begins_access_unit(&pes.payload);
        if goes_on {
            match &mut self.held {
                Some(held) if held.payload.len() + pes.payload.len() <= PES_BYTES_MAX => {
                    held.payload.extend_from_slice(&pes.payload);
                }
                Some(_) => {
                    self.held = None;
                    made.push(Made::Bad);
                }
                None => {
                    // The beginning of this access unit was already passed on as a whole picture. From now on, a
                    // packet waits for its continuation.
                    self.cuts = true;
                    made.push(Made::Bad);
                }
            }
            return;
        }
        self.finish(made);
        if self.cuts || (pes.bounded && pes.payload.len() >= CUT_BYTES) {
            let payload = BytesMut::from(&pes.payload[..]);
            self.held = Some(Held { first: Pes { payload: Bytes::new(), ..pes }, payload });
        } else {
            self.pictures(&pes, &pes.payload, made);
        }
    }

    /// Ends the stream: emits the held packet.
    pub(super) fn finish(&mut self, made: &mut Vec<Made>) {
        if let Some(held) = self.held.take() {
            self.pictures(&held.first, &held.payload, made);
        }
    }

    /// True if a payload begins with a NAL unit that begins an access unit, and not with a slice or a part of one.
    fn begins_access_unit(&self, payload: &[u8]) -> bool {
        let zeros = payload.iter().position(|&byte| byte != 0).unwrap_or(0);
        let starts = zeros >= 2 && payload.get(zeros) == Some(&1);
        let first = payload.get(zeros.saturating_add(1)..).unwrap_or_default();
        starts
            && match self.coding.role(first.get(..64).unwrap_or(first)) {
                Role::Delimiter | Role::Set | Role::Before { .. } => true,
                Role::Slice { begins, .. } => begins,
                Role::Filler | Role::Other => false,
            }
    }

    fn pictures(&mut self, pes: &Pes, payload: &[u8], made: &mut Vec<Made>) {
        let mut picture = Picture::default();
        let mut done: Vec<Picture> = Vec::new();
        for nal in nal::AnnexB::new(payload) {
            let role = self.coding.role(nal);
            let begins = match role {
                Role::Delimiter | Role::Set | Role::Before { .. } => true,
                Role::Slice { begins, .. } => begins,
                Role::Filler | Role::Other => false,
            };
            if picture.has_slice && begins && self.frames_only {
                done.push(std::mem::take(&mut picture));
                if done.len() >= PICTURES_MAX {
                    break;
                }
            }
            self.take(nal, role, payload.len(), &mut picture, made);
        }
        if picture.has_slice {
            done.push(picture);
        }
        if done.is_empty() {
            return;
        }
        let Some(first) = self.time(pes, done.len()) else {
            return made.push(Made::Early);
        };
        self.last = Some((first, done.len() as u64));
        let composition = pes.pts.map_or(0, |pts| pts.wrapping_sub(first));
        let mut dts = first;
        for picture in done {
            let key = picture.key || (picture.recovery && (pes.random_access || picture.has_sets));
            let pts = dts.wrapping_add(composition) & CLOCK_MASK;
            if self.configured {
                made.push(Made::Frame(Frame { dts, pts, key, payload: fitted(picture.payload) }));
            } else {
                made.push(Made::Early);
            }
            dts = dts.wrapping_add(self.step) & CLOCK_MASK;
        }
    }

    fn take(&mut self, nal: &[u8], role: Role, room: usize, picture: &mut Picture, made: &mut Vec<Made>) {
        match role {
            Role::Delimiter | Role::Filler => return,
            Role::Set => {
                picture.has_sets = true;
                return self.take_set(nal, made);
            }
            Role::Before { recovery } => picture.recovery |= recovery,
            Role::Slice { key, .. } => {
                if !picture.has_slice {
                    self.configure(made);
                }
                picture.has_slice = true;
                picture.key |= key;
            }
            Role::Other => {}
        }
        if picture.payload.capacity() == 0 {
            // Room is added, because a start code of three bytes becomes a length of four.
            picture.payload.reserve(room.saturating_add(64));
        }
        nal::put_with_length(nal, &mut picture.payload);
    }

    fn take_set(&mut self, nal: &[u8], made: &mut Vec<Made>) {
        let Some(key) = self.coding.set_key(nal).filter(|_| nal.len() <= SET_BYTES_MAX) else {
            return made.push(Made::Bad);
        };
        if self.sets.get(&key).is_none_or(|known| known != nal) {
            self.sets.insert(key, Bytes::copy_from_slice(nal));
            self.sets_changed = true;
        }
    }

    /// Emits new parameter sets, before the picture that uses them.
    fn configure(&mut self, made: &mut Vec<Made>) {
        if !std::mem::take(&mut self.sets_changed) {
            return;
        }
        match self.coding.config(&self.sets) {
            Ok(config) => {
                if self.coding == Coding::H264 {
                    let mut sps = self.sets.range((h264::NAL_SPS, 0)..=(h264::NAL_SPS, SET_ID_MAX));
                    self.frames_only =
                        sps.all(|(_, sps)| h264::Sps::read(sps).is_ok_and(|sps| sps.frames_only));
                }
                self.configured = true;
                made.push(Made::Config(config));
            }
            Err(_) => {
                // The sets are too many or too large, or lack something that a decoder needs; the next key frame
                // brings them again.
                self.sets.clear();
                made.push(Made::Bad);
            }
        }
    }

    /// Returns the decode time of a picture presented at `pts`, in a stream without DTS. Encoders of such streams may
    /// still reorder pictures.
    fn decode_time(&mut self, pts: u64) -> u64 {
        let decoded = self.order.next(self.unwrap.unwrap(pts));
        decoded.cast_unsigned() & CLOCK_MASK
    }

    /// Returns the DTS of a packet with `pictures` pictures. A packet without a time continues from the last.
    fn time(&mut self, pes: &Pes, pictures: usize) -> Option<u64> {
        self.has_dts |= pes.dts.is_some();
        let told = match pes.pts {
            Some(pts) if !self.has_dts && pictures == 1 => Some(self.decode_time(pts)),
            Some(_) | None => pes.dts.or(pes.pts),
        };
        if let (Some(dts), Some((first, pictures))) = (told, self.last) {
            let step = (dts.wrapping_sub(first) & CLOCK_MASK) / pictures;
            if (1..=STEP_MAX).contains(&step) {
                self.step = step;
            }
        }
        let next = |(first, pictures): (u64, u64)| first.wrapping_add(self.step * pictures) & CLOCK_MASK;
        told.or_else(|| self.last.map(next))
    }
}

/// Returns the payload in a buffer of about its size. The original buffer had room for the whole PES packet, which
/// may have had many pictures or mostly filler, but the ring counts bytes, not capacity.
fn fitted(payload: BytesMut) -> Bytes {
    if payload.capacity() / 2 > payload.len() { Bytes::copy_from_slice(&payload) } else { payload.freeze() }
}
