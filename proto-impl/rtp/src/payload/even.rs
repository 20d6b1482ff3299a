//! Divides units into payloads of equal length, so that a whole unit can be sent with one call.

use alloc::vec::Vec;

/// Bytes that may be added to a unit, in thousandths of its length.
const ADDED_MAX: usize = 30;
/// Bytes of a packet in addition to its payload: IP, UDP, RTP, extensions, SRTP tag.
const HEAD_BYTES: usize = 28 + 12 + 12 + 16;
/// Length of the audio that may follow a picture in the same send: one packet at usual rates, or two joined packets.
const AUDIO_BYTES: usize = 400;
/// Cost of a send, in packets.
const SEND_COST: usize = 4;
/// Maximum number of pieces in a unit for which a common length is searched.
const PIECES_MAX: usize = 32;
/// Maximum number of lengths tried for each piece.
const TRIES_MAX: usize = 8;

/// Returns the number of bytes that may be added to a unit of this size.
pub(super) const fn added_max(unit_bytes: usize) -> usize {
    unit_bytes.saturating_mul(ADDED_MAX) / 1000
}

/// Payloads of a unit at one choice of the common length.
#[derive(Debug, Default)]
struct Plan {
    /// Lengths with the number of consecutive payloads that have them.
    lengths: Vec<(usize, usize)>,
}

/// Chooses the common length of a unit's payloads. Pieces of at most this length share payloads, as
/// [`super::nal_units`] aggregates them. Longer pieces become fragments: each has `head` bytes, followed by a part of
/// the piece without its first `dropped` bytes. Returns the length, and the rest of `added_max`, which is left for
/// padding.
pub(super) fn common_length(
    pieces: &[usize],
    max: usize,
    (head, dropped): (usize, usize),
    added_max: usize,
) -> (usize, usize) {
    let body = |piece: usize| piece.saturating_sub(dropped);
    let room = max.saturating_sub(head).max(1);
    let is_long = |piece: &&usize| **piece > max;
    match *pieces {
        [piece] if piece > max => {
            let size = super::fragments::equal_size(body(piece), room);
            return (size.saturating_add(head), added_max);
        }
        _ if pieces.len() > PIECES_MAX || !pieces.iter().any(|piece| *piece > max) => {
            return (max, added_max);
        }
        _ => {}
    }
    let mut plan = Plan::default();
    let least = plan.fill(pieces, max, head, dropped);
    let mut best = (usize::MAX, usize::MAX, max, added_max);
    let mut consider = |length: usize| {
        let packets = plan.fill(pieces, length, head, dropped);
        let heads = packets.saturating_sub(least).saturating_mul(HEAD_BYTES);
        let Some(left) = added_max.checked_sub(heads) else { return };
        let (sends, padding) = plan.sends(left);
        let cost = sends.saturating_mul(SEND_COST).saturating_add(packets);
        if (cost, padding.saturating_add(heads)) < (best.0, best.1) {
            best = (cost, padding.saturating_add(heads), length, left);
        }
    };
    consider(max);
    for &piece in pieces.iter().filter(is_long) {
        let fewest = body(piece).div_ceil(room);
        for count in (fewest..).take(TRIES_MAX) {
            let length = body(piece).div_ceil(count).saturating_add(head);
            if length > max / 2 {
                consider(length);
            }
        }
    }
    (best.2, best.3)
}

impl Plan {
    /// Divides the pieces into payloads of at most this length. Returns the number of payloads.
    fn fill(&mut self, pieces: &[usize], length: usize, head: usize, dropped: usize) -> usize {
        self.lengths.clear();
        let room = length.saturating_sub(head).max(1);
        // An aggregate begins with a header and contains a size for each piece, as in `nal_units`.
        let (mut shared, mut alone, mut count) = (dropped, 0, 0usize);
        let mut packets = 0usize;
        let mut put = |lengths: &mut Vec<(usize, usize)>, length, count| {
            if count > 0 {
                packets = packets.saturating_add(count);
                lengths.push((length, count));
            }
        };
        for &piece in pieces {
            let bytes = piece.saturating_add(2);
            if piece > length || shared.saturating_add(bytes) > length {
                put(&mut self.lengths, if count == 1 { alone } else { shared }, count.min(1));
                (shared, alone, count) = (dropped, 0, 0);
            }
            if piece > length {
                let body = piece.saturating_sub(dropped);
                put(&mut self.lengths, length, body / room);
                put(&mut self.lengths, (body % room).saturating_add(head), (body % room).min(1));
            } else {
                (shared, alone, count) = (shared.saturating_add(bytes), piece, count.saturating_add(1));
            }
        }
        put(&mut self.lengths, if count == 1 { alone } else { shared }, count.min(1));
        packets
    }

    /// Returns the number of sends for the payloads and the audio after the unit, with at most `padding_max` bytes of
    /// padding added, and the number of padding bytes.
    fn sends(&self, padding_max: usize) -> (usize, usize) {
        let lengths: Vec<usize> = self.lengths.iter().map(|(length, _)| *length).collect();
        let padding = padding(&lengths, padding_max);
        let padded = lengths.iter().zip(&padding).map(|(length, padding)| length + usize::from(*padding));
        let mut sends = 1usize;
        let mut run: Option<(usize, bool)> = None;
        for length in padded.chain(core::iter::once(AUDIO_BYTES)) {
            run = Some(match run {
                Some((segment, ended)) if ended || length > segment => {
                    sends = sends.saturating_add(1);
                    (length, false)
                }
                Some((segment, _)) => (segment, length < segment),
                None => (length, false),
            });
        }
        (sends, padding.iter().map(|padding| usize::from(*padding)).sum())
    }
}

/// Returns the padding of each payload. A padded payload is as long as the longest one. If `padding_max` bytes are not
/// enough for all payloads, those that need the least padding are padded.
pub(super) fn padding(lengths: &[usize], padding_max: usize) -> Vec<u8> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let missing = |length: &usize| u8::try_from(longest.saturating_sub(*length)).unwrap_or(0);
    let mut padding: Vec<u8> = lengths.iter().map(missing).collect();
    let mut shortest: Vec<u8> = padding.iter().copied().filter(|missing| *missing > 0).collect();
    shortest.sort_unstable();
    let mut left = padding_max;
    let fits = shortest.iter().take_while(|missing| {
        let rest = left.checked_sub(usize::from(**missing));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let mut counts = [0u32; 256];
    fits.for_each(|missing| {
        if let Some(count) = counts.get_mut(usize::from(*missing)) {
            *count += 1;
        }
    });
    for missing in &mut padding {
        match counts.get_mut(usize::from(*missing)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => *missing = 0,
        }
    }
    padding
}

#[cfg(test)]
mod tests {
    use media::codec::{Codec, CodecConfig, h264, vp8};
    use proptest::prelude::*;
    use wire::Datagrams;

    use super::super::h264::H264;
    use super::super::{Depacketizer, Format, Packetizer, Part, Payloads, nal_units};
    use super::*;

    const MAX: usize = 1142;

    fn config() -> CodecConfig {
        CodecConfig::H264(h264::Config::read(netsim::MediaSource::video_config()).unwrap())
    }

    /// A picture in slices of these lengths.
    fn picture(slices: &[usize]) -> Vec<u8> {
        let mut unit = Vec::new();
        for &length in slices {
            unit.extend(u32::try_from(length).unwrap().to_be_bytes());
            unit.push(0x41);
            unit.extend(core::iter::repeat_n(7, length - 1));
        }
        unit
    }

    /// Packetizes a unit. Returns the length and the padding of each payload.
    fn cut(codec: &CodecConfig, unit: &[u8], even: bool) -> Vec<(usize, u8)> {
        let mut packetizer = Packetizer::new(codec.codec(), MAX).unwrap();
        if even {
            packetizer = packetizer.even();
        }
        let mut payloads = Payloads::new();
        packetizer.packetize(codec, false, unit, &mut payloads).unwrap();
        payloads.take_padded().map(|(payload, padding)| (payload.len(), padding)).collect()
    }

    /// Number of sends for payloads of these lengths, followed by audio.
    fn sends(lengths: impl Iterator<Item = usize>) -> usize {
        let datagrams: Datagrams = lengths.chain([AUDIO_BYTES]).map(|length| vec![0; length]).collect();
        let mut from = 0;
        (0..).take_while(|_| datagrams.run(from, 64).map(|run| from = run.next).is_some()).count()
    }

    /// Numbers of sends for a picture, without and with [`Packetizer::even`].
    fn both(codec: &CodecConfig, unit: &[u8]) -> (usize, usize) {
        let before = sends(cut(codec, unit, false).iter().map(|(length, _)| *length));
        let even = cut(codec, unit, true);
        (before, sends(even.iter().map(|(length, padding)| length + usize::from(*padding))))
    }

    #[test]
    fn a_picture_leaves_in_fewer_sends() {
        let h264 = config();
        let mut sends_of = Vec::new();
        let all = [
            (&[300][..], (2, 2)),
            // A message in front of a small picture.
            (&[9_600, 200], (3, 2)),
            (&[9_001], (1, 1)),
            (&[9_003], (2, 1)),
            (&[2_250, 2_260, 2_240, 2_270], (5, 1)),
            (&[2_000, 2_500, 3_000, 1_700], (5, 3)),
            (&[1_400, 1_100, 1_900, 1_000, 1_300, 1_250, 900, 1_600], (8, 7)),
            (&[15_000, 14_000, 16_000, 15_500], (5, 2)),
        ];
        for (slices, _) in all {
            sends_of.push((slices, both(&h264, &picture(slices))));
        }
        assert_eq!(sends_of, all);
        let vp8 = CodecConfig::Vp8(vp8::Config { record: bytes::Bytes::new() });
        assert_eq!(both(&vp8, &[7; 9_003]), (2, 1));
    }

    proptest! {
        #[test]
        fn what_is_added_is_bounded_and_nothing_is_lost(
            slices in prop::collection::vec(2usize..6_000, 1..12),
            key in any::<bool>(),
        ) {
            let (codec, unit) = (config(), picture(&slices));
            let mut payloads = Payloads::new();
            let mut packetizer = Packetizer::new(Codec::H264, MAX).unwrap().even();
            packetizer.packetize(&codec, key, &unit, &mut payloads).unwrap();
            let packets: Vec<_> = payloads.take_padded().collect();
            let plain = cut(&codec, &unit, false).len() + usize::from(key);
            let longest = packets.iter().map(|(payload, _)| payload.len()).max().unwrap();
            let padding: usize = packets.iter().map(|(_, padding)| usize::from(*padding)).sum();
            let heads = packets.len().saturating_sub(plain) * HEAD_BYTES;
            prop_assert!(longest <= MAX);
            prop_assert!(padding + heads <= added_max(unit.len()) + usize::from(key) * 100, "{padding} {heads}");
            for (payload, padding) in &packets {
                prop_assert!(*padding == 0 || payload.len() + usize::from(*padding) == longest);
            }
            let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
            let last = packets.len() - 1;
            for (n, (payload, _)) in packets.iter().enumerate() {
                let part = Part { timestamp: 9, marker: n == last, gap: false, payload };
                depacketizer.handle_part(&part).unwrap();
            }
            let frame = depacketizer.poll_frame().unwrap();
            prop_assert!(frame.payload.ends_with(&unit));
        }

        /// Checks that the plan predicts the payloads that the packetizer makes.
        #[test]
        fn the_plan_holds(slices in prop::collection::vec(2usize..5_000, 1..10), length in 600usize..MAX) {
            let mut plan = Plan::default();
            let packets = plan.fill(&slices, length, 2, 1);
            let planned: Vec<usize> =
                plan.lengths.iter().flat_map(|(length, count)| core::iter::repeat_n(*length, *count)).collect();
            let mut payloads = Payloads::new();
            let (codec, unit) = (config(), picture(&slices));
            nal_units::divide::<H264>(&codec, true, &unit, (length, true), &mut payloads).unwrap();
            let made: Vec<usize> = payloads.take().map(|payload| payload.len()).collect();
            prop_assert_eq!((planned, packets), (made.clone(), made.len()));
        }
    }
}
