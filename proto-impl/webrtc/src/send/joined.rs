//! Joins two Opus packets into one (RFC 6716 §3.2.2, §3.2.3), so that audio packets that wait for the same picture can
//! leave in the same send, as its shorter last datagram.
//!
//! Only for audio that was encoded in this process ([`super::Track::join_audio`]). Frames of a publisher may be
//! encrypted end to end, and joining would change the data that the publisher encrypted.

use media::codec::opus;

/// Maximum duration of a joined packet, in samples: the duration of two packets of 20 ms.
const SAMPLES_MAX: u32 = 1920;
/// A frame of at least this length has a length field of two bytes (§3.2.1).
const LONG: usize = 252;
/// Length of the longest frame in bytes.
const FRAME_BYTES_MAX: usize = 1275;
/// Mask of the lower bits of the first byte, which contain the code (§3.2).
const CODE: u8 = 3;
/// Code for two frames of equal length.
const TWO_EQUAL: u8 = 1;
/// Code for two frames of different lengths.
const TWO: u8 = 2;

/// Two joined packets: the bytes before their frames, and the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined<'l> {
    head: [u8; 3],
    head_bytes: usize,
    frames: [&'l [u8]; 2],
}

impl<'l> Joined<'l> {
    /// Joins two packets with these timestamps; `None` if the second does not directly follow the first, or if their
    /// first bytes differ.
    pub(super) fn new(first: (&'l [u8], u32), second: (&'l [u8], u32)) -> Option<Self> {
        let ((first, at), (second, next)) = (first, second);
        let samples = opus::packet_samples(first)?;
        let follows = next.wrapping_sub(at) == samples && samples <= SAMPLES_MAX / 2;
        let ((&toc, one), (&other, two)) = (first.split_first()?, second.split_first()?);
        if !follows || toc != other || toc & CODE != 0 || one.len().max(two.len()) > FRAME_BYTES_MAX {
            return None;
        }
        let frames = [one, two];
        if one.len() == two.len() {
            return Some(Self { head: [toc | TWO_EQUAL, 0, 0], head_bytes: 1, frames });
        }
        let short = one.len().min(LONG | one.len() & 3);
        let long = one.len().saturating_sub(short) / 4;
        let [short, long] = [short, long].map(|part| u8::try_from(part).unwrap_or(u8::MAX));
        let head_bytes = if one.len() < LONG { 2 } else { 3 };
        Some(Self { head: [toc | TWO, short, long], head_bytes, frames })
    }

    /// Returns the parts of the payload.
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        let [first, second] = self.frames;
        [self.head.get(..self.head_bytes).unwrap_or_default(), first, second]
    }

    /// Returns the length of the payload.
    pub(super) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divides a packet into its frames, as §3.2 says.
    fn frames(packet: &[u8]) -> Vec<Vec<u8>> {
        match packet[0] & CODE {
            0 => vec![packet[1..].to_vec()],
            TWO_EQUAL => {
                packet[1..].chunks(packet[1..].len().div_ceil(2).max(1)).map(<[u8]>::to_vec).collect()
            }
            _ => {
                let first = usize::from(packet[1]);
                let (length, at) =
                    if first < LONG { (first, 2) } else { (first + 4 * usize::from(packet[2]), 3) };
                vec![packet[at..at + length].to_vec(), packet[at + length..].to_vec()]
            }
        }
    }

    fn packet(bytes: usize, with: u8) -> Vec<u8> {
        [vec![0xfc], vec![with; bytes]].concat()
    }

    #[test]
    fn two_packets_become_one_with_both_frames() {
        for one in [0, 1, 80, 251, 252, 253, 255, 256, 300, 1275] {
            for two in [0, 1, 80, 252, 300, 1275] {
                let (first, second) = (packet(one, 1), packet(two, 2));
                let joined = Joined::new((&first, 0u32.wrapping_sub(960)), (&second, 0)).unwrap();
                let whole = joined.parts().concat();
                assert_eq!(joined.len(), whole.len());
                assert_eq!(opus::packet_samples(&whole), Some(1920), "{one} {two}");
                let wanted: Vec<_> = [&first[1..], &second[1..]].iter().map(|frame| frame.to_vec()).collect();
                if one + two > 0 {
                    assert_eq!(frames(&whole), wanted, "{one} {two}");
                }
            }
        }
    }

    #[test]
    fn what_differs_or_does_not_follow_stays_apart() {
        let (first, second) = (packet(80, 1), packet(80, 2));
        let mono = [vec![0xf8], vec![1; 80]].concat();
        let pair = [vec![0xfd], vec![1; 80]].concat();
        let long = [vec![0x18], vec![1; 80]].concat();
        assert!(Joined::new((&first, 0), (&second, 960)).is_some());
        assert_eq!(Joined::new((&first, 0), (&second, 1920)), None, "a packet is missing between them");
        assert_eq!(Joined::new((&first, 0), (&second, 0)), None);
        assert_eq!(Joined::new((&first, 0), (&mono, 960)), None);
        assert_eq!(Joined::new((&pair, 0), (&pair, 1920)), None);
        assert_eq!(Joined::new((&long, 0), (&long, 2880)), None, "120 ms is no delay for live audio");
        assert_eq!(Joined::new((&first, 0), (&packet(1276, 1), 960)), None);
        assert_eq!(Joined::new((&[], 0), (&first, 960)), None);
    }
}
