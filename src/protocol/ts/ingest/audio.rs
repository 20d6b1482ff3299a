//! Converts audio PES packets to frames.
//!
//! A PES packet contains one frame, several, or parts of frames. Its PTS is that of the first frame that begins in it
//! (ISO/IEC 13818-1 §2.4.3.7), and the times of following frames are counted from there in samples, so that errors do
//! not accumulate.

use bytes::{Bytes, BytesMut};
use media::CodecConfig;
use media::codec::{Error, aac, ac3, latm, mp3, opus};
use mpegts::{CLOCK_MASK, Pes, Stream, StreamKind, TICKS_PER_SECOND};

use super::{Frame, Made};

/// Maximum number of frames of one PES packet: seconds of audio.
const FRAMES_MAX: usize = 256;
/// Maximum size of a frame.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// The reason logged for audio that ffmpeg encodes by default for MPEG-TS.
const LAYER_II: &str = "MPEG audio of layer II (MP2) is not carried";
/// Maximum size of a frame's head, unless it announces more.
const HEAD_BYTES: usize = 16;

/// A frame's position in the buffer, and its time.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// Number of bytes before the payload.
    skip: usize,
    /// Size of the whole frame in bytes.
    bytes: usize,
    samples: u32,
    rate: u32,
    config: Hint,
}

/// The parameters of a track in a frame's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    Adts { object_type: u8, rate_index: u8, channels: u8 },
    Latm,
    Mp3(mp3::Config),
    Ac3 { enhanced: bool },
    Opus { channels: u8 },
}

impl Hint {
    fn of(adts: &aac::Adts) -> Self {
        Self::Adts {
            object_type: adts.object_type,
            rate_index: adts.rate_index,
            channels: adts.channel_configuration,
        }
    }
}

/// An audio stream.
#[derive(Debug)]
pub(super) struct Audio {
    stream: Stream,
    latm: latm::Reader,
    /// The beginning of a frame that ends in the next packet.
    begun: Bytes,
    /// The time of a frame. `samples` counts the samples since that frame.
    anchor: Option<u64>,
    samples: u64,
    rate: u32,
    hint: Option<Hint>,
    /// True if a syncword was missing. The next syncword counts only if another one follows its frame.
    lost: bool,
}

impl Audio {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            latm: latm::Reader::new(),
            begun: Bytes::new(),
            anchor: None,
            samples: 0,
            rate: TICKS_PER_SECOND,
            hint: None,
            lost: false,
        }
    }

    pub(super) const fn stream(&self) -> Stream {
        self.stream
    }

    /// Takes a PES packet.
    pub(super) fn push(&mut self, pes: Pes, made: &mut Vec<Made>) {
        let mut begun = std::mem::take(&mut self.begun);
        if pes.discontinuity && !begun.is_empty() {
            begun.clear();
            made.push(Made::Bad);
        }
        let carried = begun.len();
        let data = if carried == 0 { pes.payload } else { join(&begun, &pes.payload) };
        let mut pts = pes.pts;
        let mut at = 0;
        for _ in 0..FRAMES_MAX {
            if at >= carried
                && let Some(pts) = pts.take()
            {
                (self.anchor, self.samples) = (Some(pts), 0);
            }
            let rest = data.slice(at.min(data.len())..);
            match self.head(&rest) {
                Ok(head) if head.bytes <= rest.len() => {
                    let bytes = self.with_dependents(&head, &rest);
                    self.frame(&head, rest.slice(..bytes), made);
                    at += bytes;
                }
                Err(Error::Invalid(_) | Error::TooLarge(_)) => {
                    if !std::mem::replace(&mut self.lost, true) {
                        let not_carried = self.is_layer_two(&rest).then_some(Made::NotCarried(LAYER_II));
                        made.push(not_carried.unwrap_or(Made::Bad));
                    }
                    at += self.next_head(&rest);
                }
                // The frame is incomplete.
                Ok(_) | Err(_) => {
                    self.begun = rest;
                    return;
                }
            }
        }
        // A packet with so many frames is noise.
        made.push(Made::Bad);
    }

    /// Parses the head of the frame at the beginning of `rest`. The error is Truncated if there are too few bytes.
    fn head(&self, rest: &[u8]) -> Result<Head, Error> {
        let head = rest.get(..HEAD_BYTES).unwrap_or(rest);
        let found = match self.stream.kind {
            StreamKind::AacAdts => aac::Adts::read(head).and_then(|adts| {
                let known = adts.blocks == 1 && adts.channel_configuration != 0;
                let head = Head {
                    skip: adts.header_bytes,
                    bytes: adts.frame_bytes,
                    samples: aac::FRAME_SAMPLES,
                    rate: adts.sample_rate,
                    config: Hint::of(&adts),
                };
                known.then_some(head).ok_or(Error::Invalid("kind of ADTS"))
            }),
            StreamKind::AacLatm => {
                // The sampling rate and the number of samples are known only after the element was read.
                let bytes = latm::element_bytes(head)?;
                Ok(Head { skip: 0, bytes, samples: 0, rate: self.rate, config: Hint::Latm })
            }
            StreamKind::MpegAudio { .. } => mp3::Header::read(head).and_then(|header| {
                Ok(Head {
                    skip: 0,
                    bytes: header.frame_bytes.ok_or(Error::Invalid("free format"))?,
                    samples: header.samples,
                    rate: header.config.sample_rate,
                    config: Hint::Mp3(header.config),
                })
            }),
            StreamKind::Ac3 | StreamKind::Eac3 => ac3::Syncframe::read(head).map(|frame| Head {
                skip: 0,
                bytes: frame.bytes,
                samples: if frame.dependent { 0 } else { frame.samples },
                rate: frame.sample_rate,
                config: Hint::Ac3 { enhanced: frame.enhanced },
            }),
            StreamKind::Opus { channels } => opus_head(rest, channels),
            StreamKind::H264
            | StreamKind::H265
            | StreamKind::Id3
            | StreamKind::Splice
            | StreamKind::Other(_) => Err(Error::Invalid("kind")),
        }?;
        if found.bytes > FRAME_BYTES_MAX || found.bytes <= found.skip {
            return Err(Error::Invalid("frame size"));
        }
        let confirmed = match rest.get(found.bytes..) {
            Some(next) if self.lost && !next.is_empty() => self.is_head(next),
            _ => true,
        };
        confirmed.then_some(found).ok_or(Error::Invalid("syncword"))
    }

    /// True if `bytes` begin like a frame of MPEG audio of layer II (ISO/IEC 11172-3 §2.4.1.3).
    fn is_layer_two(&self, bytes: &[u8]) -> bool {
        let is_mpeg = matches!(self.stream.kind, StreamKind::MpegAudio { .. });
        is_mpeg && matches!(bytes, [0xff, second, ..] if second & 0xe6 == 0xe4)
    }

    /// True if `bytes` look like a frame, as far as they go.
    fn is_head(&self, bytes: &[u8]) -> bool {
        let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
        match self.stream.kind {
            StreamKind::AacAdts => !matches!(aac::Adts::read(head), Err(Error::Invalid(_))),
            StreamKind::AacLatm => !matches!(latm::element_bytes(head), Err(Error::Invalid(_))),
            StreamKind::MpegAudio { .. } => !matches!(mp3::Header::read(head), Err(Error::Invalid(_))),
            StreamKind::Ac3 | StreamKind::Eac3 => {
                !matches!(ac3::Syncframe::read(head), Err(Error::Invalid(_)))
            }
            StreamKind::Opus { .. } => !matches!(opus::Control::read(head), Err(Error::Invalid(_))),
            StreamKind::H264
            | StreamKind::H265
            | StreamKind::Id3
            | StreamKind::Splice
            | StreamKind::Other(_) => false,
        }
    }

    /// Returns the distance to the next possible frame, at least one byte.
    fn next_head(&self, rest: &[u8]) -> usize {
        let candidate = (1..rest.len()).find(|&at| rest.get(at..).is_some_and(|next| self.is_head(next)));
        candidate.unwrap_or(rest.len()).max(1)
    }

    /// Returns the size of a frame with the frames that add channels to it (E-AC-3, ETSI TS 102 366 §E.1.3.1.1).
    fn with_dependents(&self, head: &Head, rest: &[u8]) -> usize {
        let mut bytes = head.bytes;
        while let (Hint::Ac3 { enhanced: true }, Some(next)) = (head.config, rest.get(bytes..)) {
            match ac3::Syncframe::read(next) {
                Ok(frame) if frame.dependent && frame.bytes <= next.len() => bytes += frame.bytes,
                Ok(_) | Err(_) => break,
            }
        }
        bytes
    }

    fn frame(&mut self, head: &Head, frame: Bytes, made: &mut Vec<Made>) {
        self.lost = false;
        if head.config == Hint::Latm {
            return self.element(&frame, made);
        }
        if self.hint != Some(head.config) {
            match config(head.config) {
                Ok(config) => made.push(Made::Config(config)),
                Err(_) => return made.push(Made::Bad),
            }
            self.hint = Some(head.config);
        }
        self.emit(head.samples, head.rate, frame.slice(head.skip..), made);
    }

    fn element(&mut self, element: &[u8], made: &mut Vec<Made>) {
        let Ok(frames) = self.latm.read(element) else {
            return made.push(Made::Bad);
        };
        let Some(config) = self.latm.config() else {
            return made.push(Made::Early);
        };
        let rate = config.sample_rate;
        made.push(Made::Config(CodecConfig::Aac(config.clone())));
        for frame in frames {
            self.emit(aac::FRAME_SAMPLES, rate, frame, made);
        }
    }

    fn emit(&mut self, samples: u32, rate: u32, payload: Bytes, made: &mut Vec<Made>) {
        let Some(anchor) = self.anchor else {
            return made.push(Made::Early);
        };
        // Rounded as encoders round, so that the time of the next packet is as expected.
        let ticks = |samples: u64, rate: u32| {
            let rate = u64::from(rate.max(1));
            (samples.saturating_mul(u64::from(TICKS_PER_SECOND)).saturating_add(rate / 2)) / rate
        };
        if rate != self.rate {
            self.anchor = Some(anchor.wrapping_add(ticks(self.samples, self.rate)));
            (self.samples, self.rate) = (0, rate);
        }
        let anchor = self.anchor.unwrap_or(anchor);
        let dts = anchor.wrapping_add(ticks(self.samples, rate)) & CLOCK_MASK;
        self.samples = self.samples.saturating_add(u64::from(samples));
        made.push(Made::Frame(Frame { dts, pts: dts, key: false, payload }));
    }
}

fn opus_head(rest: &[u8], channels: u8) -> Result<Head, Error> {
    let control = opus::Control::read(rest)?;
    let bytes = control.header_bytes.saturating_add(control.packet_bytes);
    // While the packet is incomplete, its number of samples is not needed.
    let samples = match rest.get(control.header_bytes..bytes) {
        Some(packet) => opus::packet_samples(packet).ok_or(Error::Invalid("Opus packet"))?,
        None => 0,
    };
    let config = Hint::Opus { channels };
    Ok(Head { skip: control.header_bytes, bytes, samples, rate: opus::SAMPLE_RATE, config })
}

fn config(hint: Hint) -> Result<CodecConfig, Error> {
    Ok(match hint {
        Hint::Adts { object_type, rate_index, channels } => {
            CodecConfig::Aac(aac::Config::of_parts(object_type, rate_index, channels)?)
        }
        Hint::Latm => return Err(Error::Invalid("LATM")),
        Hint::Mp3(config) => CodecConfig::Mp3(config),
        Hint::Ac3 { enhanced: false } => CodecConfig::Ac3(ac3::Config),
        Hint::Ac3 { enhanced: true } => CodecConfig::Eac3(ac3::Config),
        Hint::Opus { channels } => CodecConfig::Opus(opus::Config::of_channels(channels)?),
    })
}

fn join(begun: &[u8], payload: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(begun.len() + payload.len());
    joined.extend_from_slice(begun);
    joined.extend_from_slice(payload);
    joined.freeze()
}
