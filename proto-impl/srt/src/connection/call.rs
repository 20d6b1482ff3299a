//! The caller's side of the handshake.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Random;
use wire::Reader;

use crate::cipher::SessionKeys;
use crate::config::{Config, FLOW_WINDOW_MIN, MSS_MAX, MSS_MIN, STREAM_ID_BYTES_MAX};
use crate::connection::handshake_datagram;
use crate::connection::link::Start;
use crate::event::CloseReason;
use crate::filter::{Fec, FecSettings, PacketFilter};
use crate::handshake::{
    Extensions, Handshake, HsExtension, INDUCTION_EXTENSION, MAGIC, SRT_VERSION, VERSION_4, VERSION_5,
    extension, extension_field, flag, request, wire_latency, write_block, write_text,
};
use crate::incoming::micros;
use crate::packet::SocketId;
use crate::reject::RejectReason;
use crate::seq::Seq;

/// Interval at which requests are repeated (as in libsrt).
const REPEAT: Duration = Duration::from_millis(250);

/// The effect of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// The packet is not an answer, or an outdated one; ignored.
    Nothing,
    /// The next request must be sent.
    Again,
    /// The call has ended with this reason.
    Ended(CloseReason),
    /// The handshake is complete.
    Agreed(Agreed),
}

/// The listener's answers to the caller's proposals.
#[derive(Debug)]
pub(super) struct Agreed {
    hs: HsExtension,
    filter: Option<Fec>,
}

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) struct Call {
    config: Arc<Config>,
    local: SocketId,
    stream_id: String,
    pub(super) first_seq: Seq,
    keys: Option<Box<SessionKeys>>,
    /// The cookie of the induction response.
    cookie: Option<u32>,
    gives_up_at: Instant,
    repeat_at: Instant,
}

impl Call {
    pub(super) fn new(
        now: Instant,
        config: Arc<Config>,
        local: SocketId,
        stream_id: &str,
        random: &mut Random,
    ) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "31 random bits")]
        let first_seq = Seq::new(random.u64() as u32);
        let mut stream_id = stream_id.to_owned();
        stream_id.truncate(stream_id.floor_char_boundary(STREAM_ID_BYTES_MAX));
        let draw = |passphrase| Box::new(SessionKeys::draw(passphrase, config.key_length, random.clone()));
        Self {
            keys: config.passphrase.as_ref().map(draw),
            local,
            stream_id,
            first_seq,
            cookie: None,
            gives_up_at: now + config.connect_timeout,
            repeat_at: now,
            config,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.repeat_at.min(self.gives_up_at)
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.gives_up_at
    }

    /// Returns the handshake request to send, if it is time to send one.
    pub(super) fn question(&mut self, now: Instant, start: Instant) -> Option<Bytes> {
        if now < self.repeat_at {
            return None;
        }
        self.repeat_at = now + REPEAT;
        let mut handshake = Handshake {
            version: VERSION_4,
            encryption: 0,
            extension: INDUCTION_EXTENSION,
            first_seq: self.first_seq,
            mss: MSS_MAX,
            flow_window: self.config.flow_window,
            request: request::INDUCTION,
            socket: self.local,
            cookie: 0,
            peer_ip: [0; 16],
        };
        let mut extensions = Vec::new();
        if let Some(cookie) = self.cookie {
            handshake.version = VERSION_5;
            (handshake.request, handshake.cookie) = (request::CONCLUSION, cookie);
            handshake.extension = self.write_extensions(&mut extensions);
            handshake.encryption = self.keys.as_ref().map_or(0, |keys| key_field(keys.length().bytes()));
        }
        Some(handshake_datagram(micros(start, now), SocketId(0), &handshake, &extensions))
    }

    fn write_extensions(&self, out: &mut Vec<u8>) -> u16 {
        let hs = HsExtension {
            version: SRT_VERSION,
            flags: flag::OURS,
            receive_latency_ms: wire_latency(self.config.latency),
            send_latency_ms: wire_latency(self.config.peer_latency),
        };
        hs.write(extension::HS_REQUEST, out);
        let mut field = extension_field::HS;
        if let Some(keys) = &self.keys {
            write_block(extension::KM_REQUEST, &keys.message(), out);
            field |= extension_field::KM;
        }
        if !self.stream_id.is_empty() {
            write_text(extension::STREAM_ID, &self.stream_id, out);
            field |= extension_field::CONFIG;
        }
        if let PacketFilter::Fec(settings) = self.config.packet_filter {
            write_text(extension::FILTER, &settings.to_string(), out);
            field |= extension_field::CONFIG;
        }
        field
    }

    pub(super) fn handle(&mut self, now: Instant, answer: &Handshake, rest: Reader<'_>) -> Answer {
        if let Some(reason) = RejectReason::from_wire(answer.request) {
            return Answer::Ended(CloseReason::Rejected(reason));
        }
        match (self.cookie, answer.request) {
            (None, request::INDUCTION) => {
                if answer.version < VERSION_5 || answer.extension != MAGIC {
                    return Answer::Ended(CloseReason::Refused(RejectReason::VERSION));
                }
                self.cookie = Some(answer.cookie);
                self.repeat_at = now;
                Answer::Again
            }
            (Some(_), request::CONCLUSION) => match self.conclude(answer, rest) {
                Ok(agreed) => Answer::Agreed(agreed),
                Err(reason) => Answer::Ended(CloseReason::Refused(reason)),
            },
            _ => Answer::Nothing,
        }
    }

    fn conclude(&self, answer: &Handshake, rest: Reader<'_>) -> Result<Agreed, RejectReason> {
        if answer.version != VERSION_5 {
            return Err(RejectReason::VERSION);
        }
        let sizes_fit = (MSS_MIN..=MSS_MAX).contains(&answer.mss) && answer.flow_window >= FLOW_WINDOW_MIN;
        if !sizes_fit || answer.socket.0 == 0 {
            return Err(RejectReason::ROGUE);
        }
        let extensions = Extensions::read(rest)?;
        match (&self.keys, extensions.km) {
            (None, None) => {}
            (Some(keys), Some(km)) if keys.message() == km => {}
            // A key material response of a single word is an error code; 3 means "no secret". The word has the byte
            // order of the peer's processor.
            (Some(_), Some([0, 0, 0, 3] | [3, 0, 0, 0]) | None) | (None, Some(_)) => {
                return Err(RejectReason::UNSECURE);
            }
            (Some(_), Some(_)) => return Err(RejectReason::BADSECRET),
        }
        let filter = self.agree_on_filter(extensions.filter)?;
        Ok(Agreed { hs: extensions.hs.ok_or(RejectReason::ROGUE)?, filter })
    }

    /// Returns the packet filter of the connection. The listener chooses the filter, but it must be compatible
    /// with the caller's request.
    fn agree_on_filter(&self, answer: Option<FecSettings>) -> Result<Option<Fec>, RejectReason> {
        let settings = match (self.config.packet_filter, answer) {
            (PacketFilter::Off | PacketFilter::Any, None) => return Ok(None),
            (PacketFilter::Any, Some(answer)) => answer,
            (PacketFilter::Fec(asked), Some(answer)) => asked.answered(&answer),
            (PacketFilter::Off, Some(_)) | (PacketFilter::Fec(_), None) => return Err(RejectReason::FILTER),
        };
        settings.complete().map(Some).ok_or(RejectReason::FILTER)
    }

    /// The parameters that the connection starts with.
    pub(super) fn agree(
        &mut self,
        answer: &Handshake,
        agreed: &Agreed,
        start: Instant,
        timestamp: u32,
    ) -> Start {
        let (hs, first_seq) = (&agreed.hs, self.first_seq);
        Start::of_answer(&self.config, answer, hs, start, timestamp, first_seq, self.keys.take())
            .with_filter(agreed.filter)
    }
}

/// Key length in the handshake: units of eight bytes.
pub(super) fn key_field(bytes: usize) -> u16 {
    u16::try_from(bytes / 8).unwrap_or(0)
}
