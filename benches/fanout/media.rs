//! The stream: units of the right sizes at the right times, each stamped when it is sent.
//!
//! ```text
//! video body:  FLV head (5)  NAL length (4)  NAL head (2)  stamp   filler
//! audio body:  FLV head (2)  AAC head (1)    stamp   filler
//! stamp:       "MSFO"  counter (16 hex)  nanoseconds (16 hex)
//! ```
//!
//! The stamp is hexadecimal and the filler has no zero byte, so that no NAL unit needs emulation prevention.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use netsim::MediaSource;
use rtmp::chunk::{MessageHead, write_message};
use rtmp::{CHUNK_SIZE_OUT, MediaKind};

/// Frames a second, and from key frame to key frame: 2 s.
const FPS: u64 = 30;
const GOP: u64 = 60;
/// Key frames are so many times as large as the others.
const KEY_FACTOR: u64 = 8;
/// Bytes of a sound: AAC-LC of 128 kb/s, 1024 samples at 48 kHz.
const AUDIO_BYTES: usize = 340;
const AUDIO_SAMPLES: u64 = 1024;
const AUDIO_RATE: u64 = 48_000;

const MAGIC: &[u8] = b"MSFO";
const STAMP_BYTES: usize = MAGIC.len() + 32;
const VIDEO_STAMP_AT: usize = 11;
const AUDIO_STAMP_AT: usize = 3;
/// So much of a body has the stamp of either kind.
pub const HEAD_BYTES: usize = VIDEO_STAMP_AT + STAMP_BYTES;

/// The media time that a new viewer may be sent at once.
pub const GOP_TIME: Duration = Duration::from_millis(GOP * 1000 / FPS);

/// What is due next.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    pub is_video: bool,
    pub key_frame: bool,
    pub dts_ms: u64,
}

/// What a stamp says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub counter: u64,
    pub nanos: u64,
}

/// One publisher's media.
#[derive(Debug, Clone)]
pub struct Source {
    frames: u64,
    sounds: u64,
    inter_bytes: u64,
    filler: Bytes,
    scratch: BytesMut,
    parts: Vec<Bytes>,
}

impl Source {
    /// With this bit rate, video and audio together.
    pub fn new(bits_per_second: u64) -> Self {
        let audio = AUDIO_BYTES as u64 * AUDIO_RATE / AUDIO_SAMPLES;
        let frame = (bits_per_second / 8).saturating_sub(audio) / FPS;
        let inter_bytes = (frame * GOP / (GOP - 1 + KEY_FACTOR)).max(HEAD_BYTES as u64 * 2);
        let largest = inter_bytes * KEY_FACTOR * 2;
        let filler = (0..largest).map(|n| 0x40 | u8::try_from(n * 31 % 61).unwrap_or(0)).collect();
        let (scratch, parts) = (BytesMut::new(), Vec::new());
        Self { frames: 0, sounds: 0, inter_bytes, filler, scratch, parts }
    }

    /// The parameter sets as messages.
    pub fn configs(&mut self, message_stream: u32, out: &mut Vec<u8>) {
        let video = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
        self.message(MediaKind::Video, 0, message_stream, &video, &MediaSource::video_config(), out);
        let audio = AudioTag::write_header(AudioPacket::SequenceHeader);
        self.message(MediaKind::Audio, 0, message_stream, &audio, &MediaSource::audio_config(), out);
    }

    /// What comes next, in the order of the decode times.
    pub fn due(&self) -> Due {
        let (video, audio) = (self.frames * 1000 / FPS, self.sounds * AUDIO_SAMPLES * 1000 / AUDIO_RATE);
        let is_video = video <= audio;
        Due { is_video, key_frame: is_video && self.frames.is_multiple_of(GOP), dts_ms: video.min(audio) }
    }

    /// Units made so far: video, audio.
    pub const fn made(&self) -> [u64; 2] {
        [self.frames, self.sounds]
    }

    /// Makes the unit that is due, stamped with `nanos`, as a message with chunks of [`CHUNK_SIZE_OUT`].
    pub fn write_next(&mut self, nanos: u64, message_stream: u32, out: &mut Vec<u8>) {
        let due = self.due();
        if due.is_video {
            self.frame(due, nanos, message_stream, out)
        } else {
            self.sound(due, nanos, message_stream, out)
        }
    }

    fn frame(&mut self, due: Due, nanos: u64, message_stream: u32, out: &mut Vec<u8>) {
        let number = self.frames;
        self.frames += 1;
        // Sizes vary by half, with the same mean.
        let mean = if due.key_frame { self.inter_bytes * KEY_FACTOR } else { self.inter_bytes };
        let size = mean / 2 + mean * (number * 37 % 101) / 100;
        let size = usize::try_from(size).unwrap_or(0).max(STAMP_BYTES + 2);
        let frame_type = if due.key_frame { FrameType::Key } else { FrameType::Inter };
        let mut head = VideoTag::write_header(frame_type, VideoPacket::Frame, 0).to_vec();
        head.extend_from_slice(&u32::try_from(size).unwrap_or(0).to_be_bytes());
        // nal_ref_idc 3, type 5 or 1; first_mb_in_slice 0, slice_type I or P (H.264 §7.3.3).
        head.extend_from_slice(if due.key_frame { &[0x65, 0x88] } else { &[0x61, 0x9a] });
        push_stamp(&mut head, number, nanos);
        let filler = self.filler.slice(..(size - 2 - STAMP_BYTES).min(self.filler.len()));
        self.message(MediaKind::Video, due.dts_ms, message_stream, &head, &filler, out);
    }

    fn sound(&mut self, due: Due, nanos: u64, message_stream: u32, out: &mut Vec<u8>) {
        let number = self.sounds;
        self.sounds += 1;
        let mut head = AudioTag::write_header(AudioPacket::Frame).to_vec();
        // id_syn_ele 1: a channel pair.
        head.push(0x21);
        push_stamp(&mut head, number, nanos);
        let filler = self.filler.slice(..(AUDIO_BYTES - STAMP_BYTES).min(self.filler.len()));
        self.message(MediaKind::Audio, due.dts_ms, message_stream, &head, &filler, out);
    }

    fn message(
        &mut self,
        kind: MediaKind,
        dts_ms: u64,
        message_stream: u32,
        prefix: &[u8],
        payload: &Bytes,
        out: &mut Vec<u8>,
    ) {
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            timestamp: u32::try_from(dts_ms).unwrap_or(0),
            kind: kind.message_type(),
            message_stream,
        };
        write_message(&mut self.scratch, &head, prefix, payload, CHUNK_SIZE_OUT, &mut self.parts);
        self.parts.drain(..).for_each(|part| out.extend_from_slice(&part));
    }
}

/// The stamp in the first bytes of a message's body, when it has one.
pub fn stamp_of(is_video: bool, body: &[u8]) -> Option<Stamp> {
    let at = if is_video { VIDEO_STAMP_AT } else { AUDIO_STAMP_AT };
    let digits = body.get(at..at + STAMP_BYTES)?.strip_prefix(MAGIC)?;
    let (counter, nanos) = digits.split_at(16);
    let number = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    Some(Stamp { counter: number(counter)?, nanos: number(nanos)? })
}

fn push_stamp(out: &mut Vec<u8>, counter: u64, nanos: u64) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(format!("{counter:016x}{nanos:016x}").as_bytes());
}
