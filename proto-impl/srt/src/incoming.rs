//! A caller that has proven its address. The application has not yet decided about it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::Reader;

use crate::config::{FLOW_WINDOW_MIN, KeyLength, MSS_MAX, MSS_MIN};
use crate::filter::{FecSettings, PacketFilter};
use crate::handshake::{
    Extensions, Handshake, HsExtension, VERSION_5, address_field, extension_field, flag, request,
};
use crate::km::KeyMaterial;
use crate::packet::{Control, ControlWriter, SocketId};
use crate::reject::RejectReason;

/// A caller's conclusion with a valid cookie, which the application accepts, refuses or ignores.
#[derive(Debug, Clone)]
pub struct Incoming {
    from: SocketAddr,
    pub(crate) arrived: Instant,
    pub(crate) timestamp: u32,
    pub(crate) handshake: Handshake,
    pub(crate) hs: HsExtension,
    pub(crate) km: Option<Vec<u8>>,
    stream_id: Option<String>,
    pub(crate) filter: Option<FecSettings>,
}

impl Incoming {
    /// Reads the extensions of a conclusion, which follow the fixed part of the handshake.
    pub(crate) fn read(
        now: Instant,
        from: SocketAddr,
        timestamp: u32,
        handshake: Handshake,
        rest: Reader<'_>,
    ) -> Result<Self, RejectReason> {
        if handshake.version != VERSION_5 {
            return Err(RejectReason::VERSION);
        }
        let window = FLOW_WINDOW_MIN..=i32::MAX.cast_unsigned();
        if !(MSS_MIN..=MSS_MAX).contains(&handshake.mss) || !window.contains(&handshake.flow_window) {
            return Err(RejectReason::ROGUE);
        }
        if handshake.extension & extension_field::HS == 0 || handshake.socket.0 == 0 {
            return Err(RejectReason::ROGUE);
        }
        let extensions = Extensions::read(rest)?;
        let hs = extensions.hs.ok_or(RejectReason::ROGUE)?;
        if hs.flags & flag::STREAM != 0 {
            return Err(RejectReason::MESSAGEAPI);
        }
        if hs.flags & (flag::TSBPD_SEND | flag::TSBPD_RECEIVE) == 0 {
            return Err(RejectReason::ROGUE);
        }
        let km = extensions.km.map(<[u8]>::to_vec);
        let Extensions { stream_id, filter, .. } = extensions;
        Ok(Self { from, arrived: now, timestamp, handshake, hs, km, stream_id, filter })
    }

    /// The caller's address.
    #[must_use]
    pub const fn from(&self) -> SocketAddr {
        self.from
    }

    /// Socket id of the caller, for [`crate::Endpoint::insert`].
    #[must_use]
    pub const fn peer_socket(&self) -> SocketId {
        self.handshake.socket
    }

    /// The caller's stream id: text without control characters, at most 512 bytes; `None` when absent or empty.
    #[must_use]
    pub fn stream_id(&self) -> Option<&str> {
        self.stream_id.as_deref()
    }

    /// Version of the caller's SRT library: 0x010503 means 1.5.3.
    #[must_use]
    pub const fn peer_version(&self) -> u32 {
        self.hs.version
    }

    /// Returns the receive and the send latency that the caller proposes.
    #[must_use]
    pub fn wanted_latencies(&self) -> (Duration, Duration) {
        let ms = |ms: u16| Duration::from_millis(u64::from(ms));
        (ms(self.hs.receive_latency_ms), ms(self.hs.send_latency_ms))
    }

    /// Returns the packet filter for a connection with this caller, given the listener's settings.
    ///
    /// # Errors
    /// If the filters are incompatible, returns the reason with which to refuse the caller.
    pub(crate) fn agree_on_filter(&self, ours: &PacketFilter) -> Result<Option<FecSettings>, RejectReason> {
        let Some(asked) = self.filter else { return Ok(None) };
        let agreed = match ours {
            PacketFilter::Off => None,
            PacketFilter::Any => Some(asked),
            PacketFilter::Fec(ours) => ours.agreed(&asked),
        };
        let agreed = agreed.filter(|settings| settings.complete().is_some());
        agreed.map(Some).ok_or(RejectReason::FILTER)
    }

    /// True if the caller uses a passphrase.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.km.is_some()
    }

    /// Length of the caller's keys; `None` without readable key material.
    #[must_use]
    pub fn key_length(&self) -> Option<KeyLength> {
        self.km.as_deref().and_then(|km| KeyMaterial::read(km).ok()).map(|km| km.key_length())
    }

    /// Refuses the caller by appending the answer to `out`. No connection is needed.
    pub fn reject(&self, now: Instant, reason: RejectReason, out: &mut Vec<u8>) {
        let timestamp = micros(self.arrived, now);
        write_rejection(&self.handshake, self.from, timestamp, reason, out);
    }
}

/// Returns the microseconds from one time to another, as a wrapping timestamp.
pub(crate) fn micros(from: Instant, to: Instant) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "timestamps wrap")]
    let micros = to.saturating_duration_since(from).as_micros() as u32;
    micros
}

/// Writes a refusal: a copy of the caller's fixed part with the reason as its request type. It is never longer
/// than the conclusion that it answers.
pub(crate) fn write_rejection(
    to: &Handshake,
    address: SocketAddr,
    timestamp: u32,
    reason: RejectReason,
    out: &mut Vec<u8>,
) {
    let answer = Handshake {
        version: VERSION_5,
        encryption: 0,
        extension: 0,
        request: reason.to_wire(),
        peer_ip: address_field(address.ip()),
        ..*to
    };
    let mut body = Vec::new();
    answer.write(&mut body);
    ControlWriter { timestamp, to: to.socket }.write(&Control::Handshake(&body), out);
    debug_assert_ne!(reason.to_wire(), request::CONCLUSION);
}
