//! PES packets of H.264 and H.265 to access units with 4-byte lengths.
//!
//! Most encoders give each access unit a PES packet of its own, and it is passed on when that is there. Two others are
//! met. Several access units in one packet are separated at their delimiters and first slices, and share its times
//! out; H.264 that may have fields is left together, because the two fields of a frame look like two pictures. One
//! access unit in several packets, only the first of which has a time, is put together again: that takes waiting for
//! the next one, so it is done only for packets of nearly the 64 KiB that a length can say, and for streams that were
//! seen to do so with smaller ones (whose first such picture is lost).

use bytes::{Bytes, BytesMut};
use media::codec::{h264, h265};
use media::{Unwrap, nal};
use mpegts::{CLOCK_BITS, CLOCK_MASK, PES_BYTES_MAX, Pes, Stream, StreamKind};

use super::{Frame, Made};
use crate::protocol::decode_order::DecodeOrder;
use crate::protocol::parameter_sets::{Coding, SET_ID_MAX, Sets};

/// Access units of one PES packet.
const PICTURES_MAX: usize = 64;
/// A packet of a length that is at least this may be cut for its length alone.
const CUT_BYTES: usize = 60_000;
/// Ticks between pictures until two have been seen: 25 a second.
const STEP_DEFAULT: u64 = 3600;
/// The time between two pictures above which it is a pause and not the distance of pictures: 1 s.
const STEP_MAX: u64 = 90_000;
/// Largest parameter set.
const SET_BYTES_MAX: usize = media::codec::CONFIG_BYTES_MAX;

/// The role of a NAL unit in an access unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Delimiter: begins an access unit, and is not kept.
    Delimiter,
    /// Dropped: filler, and units that mean nothing.
    Filler,
    /// Parameter set: kept beside.
    Set,
    /// May stand before the picture it is of, and then begins an access unit.
    Before { recovery: bool },
    /// A slice of a picture.
    Slice { begins: bool, key: bool },
    /// Anything else.
    Other,
}

impl Coding {
    /// Whether a NAL unit is of a type that is reserved for other uses (H.264 0, 30 and 31: decoders differ over them), or
    /// has nothing behind its head where its type needs something.
    fn is_void(self, nal: &[u8]) -> bool {
        match self {
            Self::H264 => match h264::nal_type(nal) {
                0 | 30 | 31 => true,
                // End of sequence, end of stream.
                10 | 11 => false,
                _ => nal.len() < 2,
            },
            // End of sequence, end of bitstream.
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
                // That behind a picture has another type, and begins nothing.
                h265::NAL_SEI => Role::Before { recovery: false },
                _ if h265::is_picture(nal) => {
                    Role::Slice { begins: h265::begins_picture(nal), key: h265::is_key(nal) }
                }
                _ => Role::Other,
            },
        }
    }
}

/// An access unit in the making.
#[derive(Debug, Default)]
struct Picture {
    payload: BytesMut,
    has_slice: bool,
    has_sets: bool,
    key: bool,
    recovery: bool,
}

/// A PES packet that may go on in the next.
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
    /// No picture of it is a field.
    frames_only: bool,
    held: Option<Held>,
    /// Whether it was seen to split access units into several packets.
    cuts: bool,
    /// DTS of the first picture of the last packet, and how many it had.
    last: Option<(u64, u64)>,
    step: u64,
    /// Some packet had a DTS: one without has its PTS for it (ISO/IEC 13818-1 §2.4.3.7).
    has_dts: bool,
    /// Decode times of a stream that has none.
    order: DecodeOrder,
    unwrap: Unwrap,
}

impl Video {
    /// `None` for what is no video.
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

    /// A PES packet.
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
                    // The rest of its access unit was already passed on: from now on access units are waited for.
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

    /// The stream has ended: emits what is held.
    pub(super) fn finish(&mut self, made: &mut Vec<Made>) {
        if let Some(held) = self.held.take() {
            self.pictures(&held.first, &held.payload, made);
        }
    }

    /// Whether a payload begins with what an access unit begins with, and not with a slice or a piece of one.
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
            // Start codes of three bytes grow by one.
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

    /// Announces new parameter sets, before the picture that uses them.
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
                // Too many or too large, or without what a decoder needs: the next key frame brings them anew.
                self.sets.clear();
                made.push(Made::Bad);
            }
        }
    }

    /// The decoding time of a picture that is shown at `pts`, in a stream without DTS. Encoders of such streams send pictures out
    /// of their order of showing all the same.
    fn decode_time(&mut self, pts: u64) -> u64 {
        let decoded = self.order.next(self.unwrap.unwrap(pts));
        decoded.cast_unsigned() & CLOCK_MASK
    }

    /// The DTS of a packet of so many pictures. One without a time continues from the last.
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

/// The payload in a buffer of about its size. There was room for all of the PES packet, which may have had many pictures,
/// or filler for the most part, and the ring counts bytes and not room.
fn fitted(payload: BytesMut) -> Bytes {
    if payload.capacity() / 2 > payload.len() { Bytes::copy_from_slice(&payload) } else { payload.freeze() }
}
