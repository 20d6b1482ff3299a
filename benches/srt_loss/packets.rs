//! Numbered packets, and counts of those that arrived.

use std::io::{self, Read};

/// Payload bytes of a datagram of live encoders: seven MPEG-TS packets.
pub const PACKET: usize = 1316;
/// Magic at the start of every packet.
const MAGIC: [u8; 8] = *b"SRTLOSS1";
/// Bytes of magic and number.
const HEAD: usize = 16;

/// Returns the packet with this number. Its remaining bytes depend on the number, so that any changed byte is detected.
pub fn packet(number: u64) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    let mut state = number ^ 0x9e37_79b9_7f4a_7c15;
    for piece in packet.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        piece.copy_from_slice(state.to_be_bytes().get(..piece.len()).unwrap_or_default());
    }
    let head = MAGIC.into_iter().chain(number.to_be_bytes());
    packet.iter_mut().zip(head).for_each(|(byte, of_head)| *byte = of_head);
    packet
}

/// Returns the number of a packet, if the packet is undamaged.
fn number(bytes: &[u8; PACKET]) -> Option<u64> {
    let (head, _) = bytes.split_first_chunk::<HEAD>()?;
    let number = u64::from_be_bytes(head.last_chunk::<8>().copied()?);
    (bytes == &packet(number)).then_some(number)
}

/// Counters of the packets that a receiver delivered.
#[derive(Debug, Default)]
pub struct Received {
    seen: Vec<bool>,
    pub packets: u64,
    pub duplicates: u64,
    pub out_of_order: u64,
    pub damaged: u64,
    highest: Option<u64>,
}

impl Received {
    /// Returns the number of missing packets in this range.
    pub fn missing(&self, range: std::ops::Range<u64>) -> u64 {
        let seen = |number: u64| usize::try_from(number).ok().and_then(|at| self.seen.get(at).copied());
        range.filter(|number| seen(*number) != Some(true)).count() as u64
    }

    fn count(&mut self, number: u64) {
        let Ok(at) = usize::try_from(number) else { return };
        if at >= self.seen.len() {
            self.seen.resize(at + 1, false);
        }
        let Some(seen) = self.seen.get_mut(at) else { return };
        self.packets += 1;
        self.duplicates += u64::from(*seen);
        self.out_of_order += u64::from(!*seen && self.highest.is_some_and(|highest| number < highest));
        *seen = true;
        self.highest = self.highest.max(Some(number));
    }
}

/// Reads packets until the input ends, and passes the result of each to `count`. After a damaged packet, it searches
/// for the next magic.
pub fn read(mut from: impl Read, mut count: impl FnMut(&mut dyn FnMut(&mut Received))) {
    let mut bytes = [0; PACKET];
    let mut have = 0;
    while fill(&mut from, &mut bytes, have).is_ok() {
        have = 0;
        if let Some(number) = number(&bytes) {
            count(&mut |received| received.count(number));
        } else {
            count(&mut |received| received.damaged += 1);
            let next = bytes.windows(MAGIC.len()).skip(1).position(|window| window == MAGIC);
            if let Some(next) = next.map(|at| at + 1) {
                bytes.copy_within(next.., 0);
                have = PACKET - next;
            }
        }
    }
}

fn fill(from: &mut impl Read, bytes: &mut [u8; PACKET], have: usize) -> io::Result<()> {
    from.read_exact(bytes.get_mut(have..).unwrap_or_default())
}
