use proptest::prelude::*;

use super::*;
use crate::ntp::NtpTime;
use crate::number::{SequenceNumber, Ssrc};

const US: Ssrc = Ssrc(0x0102_0304);
const THEM: Ssrc = Ssrc(0xa0b0_c0d0);

fn block(ssrc: u32) -> ReportBlock {
    ReportBlock {
        ssrc: Ssrc(ssrc),
        fraction_lost: 12,
        cumulative_lost: -3,
        highest_sequence: 0x0001_fffe,
        jitter: 77,
        last_sender_report: 0xabcd_ef01,
        delay_since_report: 65_536,
    }
}

fn info() -> SenderInfo {
    SenderInfo {
        ntp: NtpTime::new(0xe8a0_0000_8000_0000),
        rtp_timestamp: 90_000,
        packets: 10,
        octets: 12_000,
    }
}

fn all(bytes: &[u8]) -> Vec<Rtcp<'_>> {
    packets(bytes).map(Result::unwrap).collect()
}

/// Makes a part with this header, for parts that this crate does not write.
fn raw(first: u8, packet_type: u8, body: &[u8]) -> Vec<u8> {
    let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
    [&[first, packet_type, words[0], words[1]], body].concat()
}

/// Reads everything in a part.
fn exhaust(bytes: &[u8]) -> usize {
    packets(bytes)
        .flatten()
        .map(|part| match part {
            Rtcp::SenderReport(report) => report.blocks().count(),
            Rtcp::ReceiverReport(report) => report.blocks().count(),
            Rtcp::SourceDescription(description) => description.items().count(),
            Rtcp::Bye(bye) => bye.ssrcs().count(),
            Rtcp::Nack(nack) => nack.numbers().count(),
            Rtcp::TransportFeedback(feedback) => feedback.arrivals().count(),
            Rtcp::Fir(fir) => fir.entries().count(),
            Rtcp::Remb(remb) => remb.ssrcs().count(),
            Rtcp::ExtendedReport(report) => report.blocks().count(),
            Rtcp::Pli(_) | Rtcp::Other { .. } => 1,
        })
        .sum()
}

#[test]
fn a_compound_packet_reads_what_it_writes() {
    let mut compound = Compound::new(1200);
    assert!(compound.sender_report(US, &info(), &[block(1), block(2)]));
    assert_eq!(compound.receiver_reports(US, &[block(3)]), 1);
    assert!(compound.source_description(US, "a-name"));
    assert!(compound.pli(Pli { sender: US, media: THEM }));
    assert!(compound.fir(US, &[FirEntry { ssrc: THEM, sequence: 9 }]));
    assert!(compound.remb(US, 2_500_000, &[THEM, US]));
    assert!(compound.reference_time(US, info().ntp));
    assert!(compound.delays(US, &[Dlrr { ssrc: THEM, last_reference: 5, delay: 6 }]));
    assert!(compound.bye(&[US, THEM]));

    let parts = all(compound.as_bytes());
    let Rtcp::SenderReport(report) = &parts[0] else { panic!("{parts:?}") };
    assert_eq!((report.ssrc, report.info), (US, info()));
    assert_eq!(report.blocks().collect::<Vec<_>>(), [block(1), block(2)]);
    let Rtcp::ReceiverReport(report) = &parts[1] else { panic!("{parts:?}") };
    assert_eq!((report.ssrc, report.blocks().next()), (US, Some(block(3))));
    let Rtcp::SourceDescription(description) = &parts[2] else { panic!("{parts:?}") };
    assert_eq!((description.cname(US), description.cname(THEM)), (Some(&b"a-name"[..]), None));
    assert_eq!(parts[3], Rtcp::Pli(Pli { sender: US, media: THEM }));
    let Rtcp::Fir(fir) = &parts[4] else { panic!("{parts:?}") };
    assert_eq!(fir.entries().collect::<Vec<_>>(), [FirEntry { ssrc: THEM, sequence: 9 }]);
    let Rtcp::Remb(remb) = &parts[5] else { panic!("{parts:?}") };
    assert_eq!((remb.bitrate, remb.ssrcs().collect::<Vec<_>>()), (2_500_000, vec![THEM, US]));
    let Rtcp::ExtendedReport(report) = &parts[6] else { panic!("{parts:?}") };
    assert_eq!(report.blocks().next(), Some(ExtendedReportBlock::ReferenceTime(info().ntp)));
    let Rtcp::ExtendedReport(report) = &parts[7] else { panic!("{parts:?}") };
    let Some(ExtendedReportBlock::Delays(delays)) = report.blocks().next() else { panic!("{report:?}") };
    assert_eq!(delays.iter().next(), Some(Dlrr { ssrc: THEM, last_reference: 5, delay: 6 }));
    let Rtcp::Bye(bye) = &parts[8] else { panic!("{parts:?}") };
    assert_eq!((bye.ssrcs().collect::<Vec<_>>(), bye.reason), (vec![US, THEM], None));
    assert_eq!(parts.len(), 9);
}

#[test]
fn a_name_fills_whole_words() {
    for length in 0..=300 {
        let mut compound = Compound::new(1200);
        let name = "n".repeat(length);
        assert!(compound.source_description(US, &name) && compound.bye(&[US]));
        let parts = all(compound.as_bytes());
        let Rtcp::SourceDescription(description) = &parts[0] else { panic!("{parts:?}") };
        assert_eq!((description.cname(US).unwrap().len(), parts.len()), (length.min(255), 2));
    }
}

#[test]
fn numbers_are_packed_into_pairs_and_a_limit_is_kept() {
    let numbers: Vec<SequenceNumber> =
        [65_530u16, 65_531, 65_535, 0, 10, 11, 12, 400, 417, 418].map(SequenceNumber).into();
    let mut compound = Compound::new(1200);
    assert_eq!(compound.nack(US, THEM, &numbers), numbers.len());
    assert_eq!(compound.as_bytes().len(), 12 + 4 * 4);
    let parts = all(compound.as_bytes());
    let Rtcp::Nack(nack) = &parts[0] else { panic!("{parts:?}") };
    assert_eq!((nack.sender, nack.media, nack.numbers().collect::<Vec<_>>()), (US, THEM, numbers.clone()));

    let mut small = Compound::new(16);
    assert_eq!(small.nack(US, THEM, &numbers), 5);
    assert_eq!((small.nack(US, THEM, &numbers), small.as_bytes().len()), (0, 16));
    assert!(!small.pli(Pli { sender: US, media: THEM }));
    assert_eq!(small.as_bytes().len(), 16);
    assert_eq!(Compound::new(100).nack(US, THEM, &[]), 0);
    assert_eq!(Compound::new(100).receiver_reports(US, &vec![block(1); 40]), 3);
    assert_eq!(Compound::new(10_000).receiver_reports(US, &vec![block(1); 40]), 40);
    assert!(!Compound::new(10_000).bye(&[US; 32]));
}

#[test]
fn arrivals_read_what_is_written() {
    let deltas: Vec<Option<i16>> = [Some(0), None, Some(255), Some(256), Some(-1), None, None, Some(4)]
        .into_iter()
        .chain(std::iter::repeat_n(Some(3), 40))
        .chain(std::iter::repeat_n(None, 9000))
        .chain([Some(1)])
        .collect();
    let mut compound = Compound::new(1200);
    assert!(compound.transport_feedback((US, THEM), SequenceNumber(65_500), (0x80_0000, 7), &deltas));
    let parts = all(compound.as_bytes());
    let Rtcp::TransportFeedback(feedback) = &parts[0] else { panic!("{parts:?}") };
    assert_eq!((feedback.feedback_count, feedback.reference), (7, -0x80_0000));
    let arrivals: Vec<Arrival> = feedback.arrivals().collect();
    assert_eq!(arrivals.len(), deltas.len());
    assert_eq!(arrivals[36].number, SequenceNumber(0));
    let mut clock = -0x80_0000 * 64_000;
    for (arrival, delta) in arrivals.iter().zip(&deltas) {
        clock += i64::from(delta.unwrap_or(0)) * 250;
        assert_eq!(arrival.at_micros, delta.map(|_| clock));
    }
}

/// Checks handwritten chunks of all kinds: a run of each symbol, both kinds of vectors, the reserved symbol,
/// and too few deltas.
#[test]
fn x_10_chunks_of_all_kinds() {
    let feedback = |count: u16, tail: &[u8]| {
        let mut body = vec![0; 8];
        body.extend_from_slice(&[0, 5]);
        body.extend_from_slice(&count.to_be_bytes());
        body.extend_from_slice(&[0, 0, 1, 0]);
        body.extend_from_slice(tail);
        body.resize(body.len().next_multiple_of(4), 0);
        raw(0x8f, 205, &body)
    };
    for (count, tail, came, told) in [
        (3, &[0x00, 3][..], 0, 3),
        (3, &[0x20, 3, 1, 2, 3], 3, 3),
        (2, &[0x40, 2, 0, 1, 0xff, 0xff], 2, 2),
        (2, &[0x60, 2, 0, 1, 0, 1], 0, 0),
        (14, &[0b1010_0000, 1, 9, 9], 2, 14),
        (7, &[0b1100_0110, 0, 1, 2, 3], 2, 7),
        (7, &[0b1111_0110, 0, 1, 2, 3], 0, 0),
        (7, &[0b1101_1100, 0, 1, 2, 3], 1, 1),
        // Missing deltas: only the first eight of a hundred are present.
        (100, &[0x20, 100, 1, 2, 3, 4, 5, 6, 7, 8], 8, 8),
        // A run longer than the count.
        (2, &[0x3f, 0xff, 1, 2], 2, 2),
    ] {
        let bytes = feedback(count, tail);
        let parts = all(&bytes);
        let Rtcp::TransportFeedback(feedback) = &parts[0] else { panic!("{parts:?}") };
        let arrivals: Vec<Arrival> = feedback.arrivals().collect();
        // Up to three zeros that pad the last word may be taken for deltas.
        assert!((told..=told + 3).contains(&arrivals.len()), "{tail:?}: {arrivals:?}");
        let arrived = arrivals.iter().filter(|arrival| arrival.at_micros.is_some()).count();
        assert!((came..=came + 3).contains(&arrived), "{tail:?}: {arrivals:?}");
    }
    // Fewer chunks than the count needs, including runs of length 0.
    for tail in [&[][..], &[0x20, 3], &[0, 0, 0, 0], &[0x80, 0]] {
        assert!(packets(&feedback(60_000, tail)).all(|part| part.is_err()));
    }
}

#[test]
fn x_10_counts_beyond_the_end_are_ignored() {
    let remb = [&[0; 8][..], b"REMB", &[255, 0xff, 0xff, 0xff], &[1; 8]].concat();
    for (first, packet_type, body) in [
        (0x8f, 206, &remb[..]),
        (0x9f, 200, &[0; 40]),
        (0x81, 201, &[0; 24]),
        (0x9f, 203, &[0; 40]),
        (0x81, 205, &[0; 4]),
        (0x81, 206, &[0; 4]),
        (0x84, 206, &[]),
        (0x80, 207, &[]),
        (0xa0, 203, &[0, 0, 0, 0]),
        (0xa0, 203, &[0, 0, 0, 5]),
        (0xa0, 203, &[]),
    ] {
        let bytes = raw(first, packet_type, body);
        assert!(packets(&bytes).all(|part| part.is_err()), "{bytes:?}");
        // A part after the refused one is still read.
        let more = [bytes, raw(0x81, 206, &[0; 8])].concat();
        assert!(matches!(packets(&more).last(), Some(Ok(Rtcp::Pli(_)))));
    }
    // The maximum rate; and 18 bits with an exponent of 63.
    let bytes = raw(0x8f, 206, &[&remb[..12], &[0, 0xff, 0xff, 0xff]].concat());
    let Some(Ok(Rtcp::Remb(remb))) = packets(&bytes).next() else { panic!("a REMB") };
    assert_eq!((remb.bitrate, remb.ssrcs().count()), (u64::MAX, 0));
    // Feedback of another application.
    let other = raw(0x8f, 206, &[0; 16]);
    assert_eq!(all(&other), [Rtcp::Other { packet_type: 206, count: 15 }]);
}

#[test]
fn x_10_malformed_descriptions_and_extended_reports() {
    for body in [
        &[0, 0, 0, 1, 1, 200, b'a', b'b'][..],
        &[0, 0, 0, 1, 1, 2, b'a', b'b'],
        &[0, 0, 0, 1, 0, 0, 0, 0],
        &[],
        &[1, 1, 1, 1],
    ] {
        exhaust(&raw(0x9f, 202, body));
    }
    let two = [0, 0, 0, 1, 1, 1, b'a', 0, 0, 0, 0, 2, 2, 1, b'b', 0];
    let bytes = raw(0x82, 202, &two);
    let parts = all(&bytes);
    let Rtcp::SourceDescription(description) = &parts[0] else { panic!("{parts:?}") };
    let items: Vec<Item<'_>> = description.items().collect();
    assert_eq!((items.len(), items[1].ssrc, items[1].text), (2, Ssrc(2), &b"b"[..]));

    // An unknown block is skipped; a block longer than the packet ends the iteration.
    let blocks =
        [&[0, 0, 0, 1][..], &[7, 0, 0, 1, 9, 9, 9, 9], &[4, 0, 0, 2], &[1; 8], &[5, 0, 0xff, 0xff]].concat();
    let bytes = raw(0x80, 207, &blocks);
    let parts = all(&bytes);
    let Rtcp::ExtendedReport(report) = &parts[0] else { panic!("{parts:?}") };
    let blocks: Vec<_> = report.blocks().collect();
    let time = NtpTime::new(0x0101_0101_0101_0101);
    assert_eq!(blocks, [ExtendedReportBlock::Other(7), ExtendedReportBlock::ReferenceTime(time)]);
    let short = raw(0x80, 207, &[0, 0, 0, 1, 4, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(exhaust(&short), 0);
}

#[test]
fn x_10_compounds_with_wrong_lengths_end() {
    let mut compound = Compound::new(1200);
    assert!(compound.sender_report(US, &info(), &[block(1)]) && compound.bye(&[US]));
    let good = compound.into_bytes();
    for length in 0..=0xffff_u16 {
        let mut bytes = good.clone();
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        assert!(exhaust(&bytes) <= 3);
    }
    let mut wrong = good;
    wrong[0] = 0x41;
    assert_eq!(packets(&wrong).collect::<Vec<_>>(), [Err(Error::Version(1))]);
    assert_eq!(packets(&[0x80, 100, 0, 0]).collect::<Vec<_>>(), [Err(Error::NotRtcp(100))]);
    assert_eq!(packets(&[]).count(), 0);
}

/// Checks every length up to 1600 with every first byte and every supported packet type of RTCP.
#[test]
fn x_01_no_length_and_no_first_byte_panics_a_reader() {
    let mut noise = vec![0; 1600];
    crypto::Seed::from_number(2).random().fill(&mut noise);
    for length in 0..=1600usize {
        for first in 128..=191u8 {
            for packet_type in [96u8, 200, 205, 206, 202] {
                noise[..2].copy_from_slice(&[first, packet_type]);
                // Half of the inputs have a valid length field.
                if length % 2 == 0 && length >= 4 {
                    let words = u16::try_from((length / 4).saturating_sub(1)).unwrap();
                    noise[2..4].copy_from_slice(&words.to_be_bytes());
                }
                exhaust(&noise[..length]);
                if let Ok(packet) = crate::Packet::read(&noise[..length]) {
                    assert!(packet.payload.len() + usize::from(packet.padding) < length);
                }
                assert!(
                    crate::header_length(&noise[..length]).is_ok_and(|head| head <= length)
                        || length < 12
                        || first & 0x1f != 0
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_walked(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 200u8..208) {
        if bytes.len() > 3 {
            bytes[0] = bytes[0] & 0x3f | 0x80;
            bytes[1] = kind;
            let words = u16::try_from(bytes.len() / 4 - 1).unwrap();
            bytes[2..4].copy_from_slice(&words.to_be_bytes());
        }
        exhaust(&bytes);
    }

    #[test]
    fn any_numbers_are_asked_for(start in any::<u16>(), leaps in prop::collection::vec(1u16..40, 1..200)) {
        let mut number = SequenceNumber(start);
        let numbers: Vec<SequenceNumber> = leaps.iter().map(|&leap| { number = number.plus(leap); number }).collect();
        let mut compound = Compound::new(4000);
        prop_assert_eq!(compound.nack(US, THEM, &numbers), numbers.len());
        let Some(Ok(Rtcp::Nack(nack))) = packets(compound.as_bytes()).next() else { panic!("a NACK") };
        prop_assert_eq!(nack.numbers().collect::<Vec<_>>(), numbers);
    }
}
