//! TURN over TCP and TLS (RFC 8656 §3.1): messages of the byte stream are handled as datagrams of the port. The connection ends with its
//! allocation, which has a lifetime, so silence is not limited here.

use bytes::BytesMut;
use turn::stream::{MessageReader, write};

use crate::protocol::carrier::{Framing, StreamCarrier, Terms};
use crate::types::Now;

static TERMS: Terms = Terms {
    port: super::PORT,
    protocol: "turn-tcp",
    silence_max: None,
    unclaimed: "no allocation was made",
    unwanted: "it has no allocation",
};

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
