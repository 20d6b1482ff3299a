//! RTP, RTCP and SRTP: packets of a peer without the key, and of one that has it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rtp::dependency::{Dependencies, Descriptor};
use rtp::extension::{Extension, ExtensionMap};
use rtp::receive::{REORDER_PACKETS_MAX, ReceiveConfig, ReceiveEvent, Receiver};
use rtp::rtcp::{Compound, Rtcp, packets};
use rtp::rtx::RtxMap;
use rtp::transport_cc::ArrivalRecorder;
use rtp::{Header, Packet, PayloadType, SequenceNumber, Ssrc, header_length};
use srtp::{Inbound, MasterKey, Outbound, Profile};

/// Feeds a datagram to each of the protocols, then uses its bytes as the sequence numbers of a stream of packets.
pub fn srtp_rtp_rtcp(data: &[u8]) {
    packet(data);
    control(data);
    for profile in [Profile::Aes128CmHmacSha1_80, Profile::AeadAes128Gcm, Profile::AeadAes256Gcm] {
        sealed(profile, data);
    }
    stream(data);
    arrivals(data);
}

fn packet(data: &[u8]) {
    assert_eq!(Header::read(data).is_ok(), header_length(data).is_ok());
    let Ok(packet) = Packet::read(data) else { return };
    let mut again = Vec::new();
    packet.write(&mut again);
    assert_eq!(Packet::read(&again), Ok(packet));

    let mut map = ExtensionMap::new();
    for (id, extension) in (1..).zip(Extension::ALL) {
        map.insert(extension, id);
    }
    let values = map.read(packet.header.extension);
    let mut bytes = Vec::new();
    assert_eq!(map.read(map.write(&values, &mut bytes)), values);

    let mut dependencies = Dependencies::new();
    for value in
        [values.dependency_descriptor, Some(packet.payload), Some(packet.payload)].into_iter().flatten()
    {
        let read = Descriptor::read(value, None);
        let mut again = Vec::new();
        if let Ok(descriptor) = &read
            && descriptor.write(&mut again)
        {
            assert_eq!(Descriptor::read(&again, None).as_ref(), Ok(descriptor));
        }
        let handled = dependencies.handle(value);
        assert!(handled.is_err() || read.is_ok() || value.len() > 3);
    }

    let mut rtx = RtxMap::new();
    let (media, repair) = (PayloadType::new(96), packet.header.payload_type);
    if media.is_some_and(|media| rtx.add_payload_type(repair, media))
        && rtx.add_source(packet.header.ssrc, Ssrc(1))
    {
        let payload = Bytes::copy_from_slice(packet.payload);
        let repaired = rtx.unwrap(&packet).map(|repaired| repaired.payload(&payload).len());
        assert_eq!(repaired, packet.payload.len().checked_sub(2).filter(|&length| length > 0));
    }
}

/// Reads each part of a compound packet to its end. Kinds that this server also writes are written again, and must
/// read the same.
fn control(data: &[u8]) {
    for part in packets(data).flatten() {
        let mut again = Compound::new(data.len().saturating_add(64));
        match &part {
            Rtcp::SenderReport(report) => {
                let blocks: Vec<_> = report.blocks().collect();
                assert!(again.sender_report(report.ssrc, &report.info, &blocks));
            }
            Rtcp::ReceiverReport(report) => {
                let blocks: Vec<_> = report.blocks().collect();
                assert_eq!(again.receiver_reports(report.ssrc, &blocks), blocks.len());
            }
            Rtcp::Bye(bye) if bye.reason.is_none() => {
                assert!(again.bye(&bye.ssrcs().collect::<Vec<_>>()));
            }
            Rtcp::Fir(fir) => {
                let entries: Vec<_> = fir.entries().collect();
                assert!(again.fir(fir.sender, &entries));
                let Some(Ok(Rtcp::Fir(read))) = packets(again.as_bytes()).next() else { panic!("a FIR") };
                // Each entry has three reserved bytes, which are not written again.
                assert!(read.sender == fir.sender && read.entries().eq(entries));
                continue;
            }
            Rtcp::Pli(pli) => assert!(again.pli(*pli)),
            Rtcp::Remb(remb) => {
                assert!(again.remb(remb.sender, remb.bitrate, &remb.ssrcs().collect::<Vec<_>>()));
                let Some(Ok(Rtcp::Remb(read))) = packets(again.as_bytes()).next() else { panic!("a REMB") };
                assert!(read.bitrate <= remb.bitrate && read.ssrcs().eq(remb.ssrcs()));
                continue;
            }
            Rtcp::Nack(nack) => {
                let mut numbers: Vec<SequenceNumber> = nack.numbers().collect();
                let mut room = Compound::new(data.len().saturating_mul(20).saturating_add(64));
                // The number of requested packets is limited; below that limit, all of them fit.
                numbers.truncate(1000);
                assert_eq!(room.nack(nack.sender, nack.media, &numbers), numbers.len());
                continue;
            }
            Rtcp::SourceDescription(description) => {
                assert!(description.items().count() <= data.len());
                continue;
            }
            Rtcp::TransportFeedback(feedback) => {
                assert!(feedback.arrivals().count() <= usize::from(feedback.count));
                continue;
            }
            Rtcp::ExtendedReport(report) => {
                assert!(report.blocks().count() <= data.len());
                continue;
            }
            _ => continue,
        }
        let read: Vec<_> = packets(again.as_bytes()).flatten().collect();
        assert_eq!(read.first(), Some(&part));
    }
}

/// Checks that data that was never sealed does not open, that a sealed packet opens exactly once, and that it does
/// not open if any byte was changed.
fn sealed(profile: Profile, data: &[u8]) {
    let Some((master, _)) = MasterKey::of_dtls(profile, &vec![9; profile.keying_bytes()]) else {
        panic!("keying material")
    };
    let (Some(mut outbound), Some(mut inbound)) = (Outbound::new(&master), Inbound::new(&master)) else {
        panic!("contexts")
    };
    assert!(inbound.unprotect(&mut data.to_vec()).is_err());
    assert!(inbound.unprotect_rtcp(&mut data.to_vec()).is_err());

    let mut packet = data.to_vec();
    if outbound.protect(&mut packet).is_ok() {
        let at = data.len() % packet.len();
        let mut forged = packet.clone();
        forged[at] ^= 0x40;
        assert!(inbound.unprotect(&mut forged).is_err());
        let mut copy = packet.clone();
        assert_eq!(inbound.unprotect(&mut packet), Ok(data.len()));
        assert_eq!(packet[..data.len()], *data);
        assert!(inbound.unprotect(&mut copy).is_err());
        assert!(outbound.protect(&mut data.to_vec()).is_err());
    }
    let mut packet = data.to_vec();
    if outbound.protect_rtcp(&mut packet).is_ok() && data.first().is_some_and(|first| first >> 6 == 2) {
        let mut copy = packet.clone();
        assert_eq!(inbound.unprotect_rtcp(&mut packet), Ok(data.len()));
        assert_eq!(packet[..data.len()], *data);
        assert!(inbound.unprotect_rtcp(&mut copy).is_err());
    }
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Feeds a receiver with packets. Each takes four bytes of the input: a wait, a flag for a retransmission, and a
/// sequence number.
fn stream(data: &[u8]) {
    let mut now = epoch();
    let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::with_nack(90_000));
    let (mut last, mut nacks) = (None, Vec::new());
    for step in data.chunks_exact(4) {
        now += Duration::from_millis(step[0].into());
        let Some(payload_type) = PayloadType::new(96) else { return };
        let header = Header {
            marker: false,
            payload_type,
            sequence_number: SequenceNumber(u16::from_be_bytes([step[2], step[3]])),
            timestamp: 0,
            ssrc: Ssrc(7),
            csrcs: rtp::Csrcs::default(),
            extension: None,
        };
        if step[1] & 1 == 0 {
            receiver.handle_packet(now, &header, Bytes::from_static(b"x"));
        } else {
            receiver.handle_recovered(now, &header, Bytes::from_static(b"x"));
        }
        receiver.handle_timeout(now);
        nacks.clear();
        receiver.poll_nacks(now, &mut nacks);
        assert!(nacks.len() <= rtp::receive::NACK_LIST_MAX);
        while let Some(event) = receiver.poll_event() {
            match event {
                ReceiveEvent::Packet(packet) => {
                    assert!(last.is_none_or(|last| packet.sequence > last));
                    last = Some(packet.sequence);
                }
                ReceiveEvent::Lost { packets } => assert!(packets > 0),
                ReceiveEvent::Restarted => last = None,
            }
        }
        assert!(receiver.stats().waiting <= REORDER_PACKETS_MAX);
        assert!(receiver.poll_timeout().is_none_or(|at| at > now));
        let _ = receiver.report(now);
    }
}

/// Feeds packets in steps of three bytes, a wait and a sequence number. Feedback must report no more packets than have
/// arrived.
fn arrivals(data: &[u8]) {
    let mut now = epoch();
    let mut recorder = ArrivalRecorder::new(now);
    let (mut came, mut told) = (0, 0);
    for step in data.chunks_exact(3) {
        now += Duration::from_millis(u64::from(step[0]) * 4);
        recorder.handle_packet(now, u16::from_be_bytes([step[1], step[2]]));
        came += 1;
        for part in 0.. {
            assert!(part < 1000, "feedback without an end");
            let mut out = Compound::new(1200);
            if !recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut out) {
                break;
            }
            for part in packets(out.as_bytes()) {
                let Ok(Rtcp::TransportFeedback(feedback)) = part else { panic!("{part:?}") };
                assert_eq!(feedback.arrivals().count(), usize::from(feedback.count));
                told += feedback.arrivals().filter(|arrival| arrival.at_micros.is_some()).count();
            }
        }
        assert!(recorder.poll_timeout().is_none_or(|at| at > now));
        assert!(told <= came);
    }
}
