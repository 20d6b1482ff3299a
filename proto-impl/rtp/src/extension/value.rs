//! Values of the supported extensions.

use core::time::Duration;

use super::kind::Extension;
use crate::ntp::NtpTime;

/// The audio level of a packet (RFC 6464 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioLevel {
    /// The sender considers the audio to be speech.
    pub voice: bool,
    /// Level in -dBov: 0 is the loudest, 127 silence.
    pub level: u8,
}

/// Departure time of a packet: seconds as 6.18 fixed point; wraps around every 64 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsSendTime(u32);

impl AbsSendTime {
    /// Creates a time from the lower 24 bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw & 0x00ff_ffff)
    }

    /// Returns the middle 24 bits of a wall-clock time.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the upper bits are cut by definition")]
    pub const fn of(time: NtpTime) -> Self {
        Self::new((time.value() >> 14) as u32)
    }

    /// The value as sent on the wire.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// Playout delay that the sender requests from the player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayoutDelay {
    /// Minimum delay, in steps of 10 ms up to 40.95 s.
    pub min: Duration,
    /// Maximum delay, in steps of 10 ms up to 40.95 s.
    pub max: Duration,
}

impl PlayoutDelay {
    const STEP_MS: u128 = 10;
    const STEPS_MAX: u128 = 0x0fff;

    fn read([a, b, c]: [u8; 3]) -> Self {
        let of = |steps: u16| Duration::from_millis(u64::from(steps) * 10);
        Self {
            min: of(u16::from(a) << 4 | u16::from(b) >> 4),
            max: of(u16::from(b & 0x0f) << 8 | u16::from(c)),
        }
    }

    fn write(self) -> [u8; 3] {
        let steps = |delay: Duration| {
            u32::try_from((delay.as_millis() / Self::STEP_MS).min(Self::STEPS_MAX)).unwrap_or(0)
        };
        let [_, a, b, c] = (steps(self.min) << 12 | steps(self.max)).to_be_bytes();
        [a, b, c]
    }
}

/// Extension values of one packet. A value is `None` if it was not negotiated or is malformed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// Media section of the packet (RFC 9143 §15).
    pub mid: Option<&'a str>,
    /// Simulcast layer of the packet (RFC 8852 §3.1).
    pub rid: Option<&'a str>,
    /// Simulcast layer that a retransmission belongs to (RFC 8852 §3.2).
    pub repaired_rid: Option<&'a str>,
    /// Audio level.
    pub audio_level: Option<AudioLevel>,
    /// Absolute send time.
    pub abs_send_time: Option<AbsSendTime>,
    /// Transport-wide sequence number, common to all sources.
    pub transport_sequence: Option<u16>,
    /// Playout delay that the sender requests.
    pub playout_delay: Option<PlayoutDelay>,
    /// Rotation and camera (3GPP TS 26.114 §7.4.5), as the raw byte.
    pub video_orientation: Option<u8>,
    /// Capture time of the packet's first sample, on the sender's wall clock.
    pub abs_capture_time: Option<NtpTime>,
    /// Dependency descriptor, for [`crate::dependency::Dependencies::handle`].
    pub dependency_descriptor: Option<&'a [u8]>,
}

/// Length of the longest fixed value.
const FIXED_BYTES_MAX: usize = 8;

/// A value to be written into a block.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Fixed([u8; FIXED_BYTES_MAX], usize),
}

impl Value<'_> {
    fn fixed(value: &[u8]) -> Self {
        let mut bytes = [0; FIXED_BYTES_MAX];
        bytes.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
        Self::Fixed(bytes, value.len())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Fixed(bytes, length) => bytes.get(..*length).unwrap_or_default(),
        }
    }
}

impl<'a> Extensions<'a> {
    /// Stores the value of one element, unless it is malformed.
    pub(super) fn take(&mut self, extension: Extension, value: &'a [u8]) {
        match (extension, value) {
            (Extension::Mid, _) => self.mid = text(value),
            (Extension::Rid, _) => self.rid = text(value),
            (Extension::RepairedRid, _) => self.repaired_rid = text(value),
            // The two-byte form may pad the level to two bytes (RFC 6464 §3).
            (Extension::AudioLevel, [byte] | [byte, _]) => {
                self.audio_level = Some(AudioLevel { voice: byte & 0x80 != 0, level: byte & 0x7f });
            }
            (Extension::AbsSendTime, &[a, b, c]) => {
                self.abs_send_time = Some(AbsSendTime::new(u32::from_be_bytes([0, a, b, c])));
            }
            (Extension::TransportCc, &[a, b]) => {
                self.transport_sequence = Some(u16::from_be_bytes([a, b]));
            }
            (Extension::PlayoutDelay, &[a, b, c]) => {
                self.playout_delay = Some(PlayoutDelay::read([a, b, c]));
            }
            (Extension::VideoOrientation, &[byte]) => self.video_orientation = Some(byte),
            // The clock offset of the capturing device may follow; it is ignored.
            (Extension::AbsCaptureTime, _) if matches!(value.len(), 8 | 16) => {
                let time = value.first_chunk().map(|time| NtpTime::new(u64::from_be_bytes(*time)));
                self.abs_capture_time = time;
            }
            (Extension::DependencyDescriptor, [_, _, _, ..]) => self.dependency_descriptor = Some(value),
            _ => {}
        }
    }

    /// Returns the values in the order of [`Extension::ALL`]; `None` for those not set.
    pub(super) fn values(&self) -> [(Extension, Option<Value<'a>>); 10] {
        let level =
            |level: AudioLevel| Value::fixed(&[level.level & 0x7f | if level.voice { 0x80 } else { 0 }]);
        let send_time = |time: AbsSendTime| {
            let [_, rest @ ..] = time.value().to_be_bytes();
            Value::fixed(&rest)
        };
        [
            (Extension::Mid, self.mid.map(Value::Text)),
            (Extension::Rid, self.rid.map(Value::Text)),
            (Extension::RepairedRid, self.repaired_rid.map(Value::Text)),
            (Extension::AudioLevel, self.audio_level.map(level)),
            (Extension::AbsSendTime, self.abs_send_time.map(send_time)),
            (
                Extension::TransportCc,
                self.transport_sequence.map(|number| Value::fixed(&number.to_be_bytes())),
            ),
            (Extension::PlayoutDelay, self.playout_delay.map(|delay| Value::fixed(&delay.write()))),
            (Extension::VideoOrientation, self.video_orientation.map(|value| Value::fixed(&[value]))),
            (
                Extension::AbsCaptureTime,
                self.abs_capture_time.map(|time| Value::fixed(&time.value().to_be_bytes())),
            ),
            (Extension::DependencyDescriptor, self.dependency_descriptor.map(Value::Bytes)),
        ]
    }
}

/// Reads a mid or rid, which is a token (RFC 8851 §10, RFC 5888 §4): visible ASCII. Trailing zeros, which some senders
/// add, are removed.
fn text(value: &[u8]) -> Option<&str> {
    let text = core::str::from_utf8(value).ok()?.trim_end_matches('\0');
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}
