//! TURN over TCP and TLS (RFC 8656 §3.1): messages of the byte stream are handled as datagrams of the port. The
//! connection ends with its allocation, which has a lifetime, so silence is not limited here.

use bytes::BytesMut;
use turn::stream::{MessageReader, write};

use crate::protocol::carrier::{Framing, StreamCarrier, Terms};
use crate::protocol::first_bytes::Guess;
use crate::types::Now;

static TERMS: Terms = Terms {
    port: super::PORT,
    protocol: "turn-tcp",
    silence_max: None,
    unclaimed: "no allocation was made",
    unwanted: "it has no allocation",
};

/// Recognises STUN requests by their type, whose first byte is 0, and by the magic cookie (RFC 8489 §5).
pub(super) fn first_bytes(bytes: &[u8]) -> Guess {
    const COOKIE_AT: usize = 4;
    match Guess::by_prefix(bytes, &[0]) {
        Guess::Yes => {
            let behind = bytes.get(COOKIE_AT..).unwrap_or_default();
            Guess::by_prefix(behind, &ice::stun::MAGIC_COOKIE.to_be_bytes())
        }
        Guess::No => Guess::No,
        Guess::Unknown => Guess::Unknown,
    }
}

/// Makes the session of an accepted connection.
pub(super) fn carrier(now: Now) -> StreamCarrier<TurnMessages> {
    StreamCarrier::new(now, &TERMS, TurnMessages(MessageReader::accepted()))
}

/// Framing of STUN messages and ChannelData.
#[derive(Debug)]
pub(super) struct TurnMessages(MessageReader);

impl Framing for TurnMessages {
    fn next(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, String> {
        self.0.next(input).map_err(|error| error.to_string())
    }

    fn write(&self, datagram: &[u8], out: &mut BytesMut) -> bool {
        write(datagram, out);
        true
    }
}
