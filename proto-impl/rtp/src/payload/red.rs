//! Receives redundant audio (RFC 2198): the frames of one packet, earliest first.
//!
//! ```text
//!   1 TTTTTTT oooooooooooooo llllllllll    an earlier frame: payload type, ticks before the packet, length
//!   0 TTTTTTT                              the packet's own frame, which is the rest
//! ```

use sdp::PayloadType;
use wire::Reader;

use super::Error;

/// Maximum number of earlier frames in one packet.
pub const RED_BLOCKS_MAX: usize = 8;
/// Bit of a block header that announces another block.
const MORE: u8 = 0x80;

/// A frame of a redundant packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedBlock<'a> {
    /// Payload type of the frame.
    pub payload_type: PayloadType,
    /// Ticks between the frame and its packet's timestamp; 0 for the packet's own frame.
    pub ticks_before: u32,
    /// Payload of the frame.
    pub payload: &'a [u8],
}

/// The frames of a redundant packet, ending with its own frame, which is always present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedPacket<'a> {
    blocks: [Option<RedBlock<'a>>; RED_BLOCKS_MAX],
    own: RedBlock<'a>,
}

impl<'a> RedPacket<'a> {
    /// Reads the payload of a packet. Fails if lengths exceed the payload, or if there are more than
    /// [`RED_BLOCKS_MAX`] earlier frames.
    pub fn read(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let mut heads = [None; RED_BLOCKS_MAX];
        let mut next = heads.iter_mut();
        let own = loop {
            let first = reader.u8()?;
            let payload_type = PayloadType::new(first & !MORE).ok_or(Error::Malformed("RED payload type"))?;
            if first & MORE == 0 {
                break payload_type;
            }
            let [a, b, c] = reader.array()?;
            let fields = u32::from_be_bytes([0, a, b, c]);
            let slot = next.next().ok_or(Error::Malformed("RED with too many frames"))?;
            *slot = Some((payload_type, fields >> 10, fields & 0x3ff));
        };
        let mut blocks = [None; RED_BLOCKS_MAX];
        for (block, head) in blocks.iter_mut().zip(heads) {
            let Some((payload_type, ticks_before, length)) = head else { break };
            let payload = reader.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            *block = Some(RedBlock { payload_type, ticks_before, payload });
        }
        Ok(Self { blocks, own: RedBlock { payload_type: own, ticks_before: 0, payload: reader.rest() } })
    }

    /// Iterates over the usable earlier frames: those with this payload type, at least one byte, and an
    /// earlier time than the packet.
    pub fn earlier(&self, payload_type: PayloadType) -> impl Iterator<Item = RedBlock<'a>> {
        self.blocks.into_iter().flatten().filter(move |block| {
            block.payload_type == payload_type && block.ticks_before > 0 && !block.payload.is_empty()
        })
    }

    /// The packet's own frame.
    #[must_use]
    pub const fn own(&self) -> RedBlock<'a> {
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPUS: u8 = 111;

    fn opus() -> PayloadType {
        PayloadType::new(OPUS).unwrap()
    }

    fn head(payload_type: u8, ticks: u32, length: u32) -> [u8; 4] {
        (1 << 31 | u32::from(payload_type) << 24 | ticks << 10 | length).to_be_bytes()
    }

    fn check(payload: &[u8], earlier: &[(u32, &[u8])], own: &[u8]) {
        let read = RedPacket::read(payload).unwrap();
        let found: Vec<(u32, &[u8])> =
            read.earlier(opus()).map(|block| (block.ticks_before, block.payload)).collect();
        assert_eq!((found.as_slice(), read.own().payload), (earlier, own));
    }

    #[test]
    fn frames_come_with_their_distance() {
        check(b"oown", &[], b"own");
        check(&[&head(OPUS, 960, 3)[..], b"oonetwo"].concat(), &[(960, b"one")], b"two");
        let two = [&head(OPUS, 1920, 3)[..], &head(OPUS, 960, 2), b"ooneab-"].concat();
        check(&two, &[(1920, b"one"), (960, b"ab")], b"-");
        // Frames without bytes, with another payload type, or without an earlier time are ignored.
        let none = [&head(OPUS, 960, 0)[..], &head(13, 960, 1), &head(OPUS, 0, 1), b"oabown"].concat();
        check(&none, &[], b"own");
        check(&head(OPUS, (1 << 14) - 1, 0).iter().copied().chain(*b"o").collect::<Vec<_>>(), &[], b"");
    }

    #[test]
    fn lies_are_refused() {
        for payload in [
            &b""[..],
            &[0x80 | OPUS],
            &[0x80 | OPUS, 0, 0],
            &head(OPUS, 960, 1),
            &[&head(OPUS, 960, 2)[..], b"oa"].concat(),
            &[&head(OPUS, 960, 1023)[..], &[OPUS], &[0; 1022]].concat(),
            &[&head(OPUS, 960, 0).repeat(RED_BLOCKS_MAX + 1)[..], b"o"].concat(),
        ] {
            assert!(RedPacket::read(payload).is_err(), "{payload:?}");
        }
        assert!(RedPacket::read(&[&head(OPUS, 960, 0).repeat(RED_BLOCKS_MAX)[..], b"o"].concat()).is_ok());
    }

    /// Checks that any input is either read or refused, and that the frames read lie within the input.
    #[test]
    fn any_bytes_are_bounded() {
        let mut random = crypto::Seed::from_number(13).random();
        for _ in 0..20_000 {
            let length = usize::try_from(random.below(64)).unwrap();
            let mut bytes: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            // Half of the inputs are nearly valid.
            if random.chance(0.5) && length > 8 {
                bytes[..4].copy_from_slice(&head(OPUS, 960, u32::try_from(random.below(40)).unwrap()));
                bytes[4] = OPUS;
            }
            if let Ok(read) = RedPacket::read(&bytes) {
                let total: usize = read.earlier(opus()).map(|block| block.payload.len()).sum();
                assert!(total + read.own().payload.len() < bytes.len());
                assert!(read.earlier(opus()).count() <= RED_BLOCKS_MAX);
            }
        }
    }
}
