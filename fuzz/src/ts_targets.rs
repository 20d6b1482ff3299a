//! MPEG transport streams, and the payloads of their PES packets.

use bytes::Bytes;
use media::codec::{aac, ac3, h264, h265, latm, mp3, opus};
use media::{nal, scte35};
use mpegts::{Demuxer, Event, Kind, Muxer, PES_BYTES_MAX, Pes, STREAMS_MAX, StreamKind, Unit};

use crate::splits::{head, pieces};

/// Demuxes a transport stream. Its events must not depend on how it is cut, and a PES packet that is written again must
/// read the same. Mutated tables have wrong checksums and are dropped, so the lowest bit of the first byte puts valid
/// tables in front.
pub fn ts_demux(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let mut bytes = Vec::new();
    if seed & 1 == 1 {
        let mut muxer = Muxer::new();
        muxer.set_streams(Some(StreamKind::H264), Some(audio_kind(seed)));
        let unit = Unit {
            kind: Kind::Video,
            number: 0,
            pts: 0,
            dts: 0,
            random_access: true,
            payload: &[b"\0\0\x01\x09"],
        };
        bytes.extend_from_slice(&muxer.write(&unit));
    }
    bytes.extend_from_slice(stream);
    let whole = read(&[&bytes]);
    assert_eq!(whole, read(&pieces(seed, &bytes)), "the cuts changed the meaning");
    for event in &whole {
        match event {
            Event::Program(map) => assert!(map.streams.len() <= STREAMS_MAX),
            Event::Pes(pes) => {
                assert!(pes.payload.len() <= PES_BYTES_MAX);
                again(pes);
                payload(pes);
            }
            Event::Splice(section) => again_splice(section),
        }
    }
}

const fn audio_kind(seed: u8) -> StreamKind {
    match seed >> 5 {
        0 => StreamKind::AacLatm,
        1 => StreamKind::Ac3,
        2 => StreamKind::Opus { channels: 2 },
        3 => StreamKind::MpegAudio { mpeg2: false },
        _ => StreamKind::AacAdts,
    }
}

fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let mut demuxer = Demuxer::new();
    let mut events = Vec::new();
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    for piece in pieces {
        let mut input = *piece;
        while let Some(event) = demuxer.read(&mut input) {
            events.push(event);
        }
        assert!(input.is_empty());
    }
    demuxer.finish();
    while let Some(event) = demuxer.read(&mut &[][..]) {
        events.push(event);
    }
    let stats = demuxer.stats();
    assert!(stats.packets as usize <= bytes / 188, "{stats:?}");
    assert!(stats.others.len() <= 16);
    events
}

/// Reads splice information after its checksum was corrected. Moved to another time and back, the section must be
/// the same.
pub fn scte35(data: &[u8]) {
    let mut section = data.to_vec();
    let Some(end) = section.len().checked_sub(4) else { return };
    if let [_, high, low, ..] = &mut section[..] {
        let [upper, lower] = (data.len() as u16).wrapping_sub(3).to_be_bytes();
        (*high, *low) = (*high & 0xf0 | upper & 0x0f, lower);
    }
    let checksum = media::crc32(&section[..end]);
    section[end..].copy_from_slice(&checksum.to_be_bytes());
    if scte35::is_section(&section) {
        again_splice(&Bytes::from(section));
    }
}

/// Checks that a section is the same after it was moved to another time and back.
fn again_splice(section: &Bytes) {
    let splice = scte35::Splice::read(section);
    for by in [0, 1, 1 << 32] {
        let later = scte35::shifted(section, by).expect("it is a section");
        let back = scte35::shifted(&later, (1 << 33) - by).expect("it is a section");
        // Reserved bits are kept, and the checksum is valid.
        assert_eq!(&back, section);
        let events = |splice: &scte35::Splice| splice.events.len();
        assert_eq!(scte35::Splice::read(&later).as_ref().map(events), splice.as_ref().map(events));
    }
}

/// Checks that a PES packet is the same after it was written and read.
fn again(pes: &Pes) {
    if pes.payload.is_empty() {
        return;
    }
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let pts = pes.pts.unwrap_or(0);
    let dts = pes.dts.unwrap_or(pts);
    let written = muxer.write(&Unit {
        kind: Kind::Video,
        number: 0,
        pts,
        dts,
        random_access: pes.random_access,
        payload: &[&pes.payload],
    });
    assert_eq!(written.len() % 188, 0);
    let events = read(&[&written]);
    let Some(Event::Pes(read)) = events.last() else { panic!("{} bytes were lost", pes.payload.len()) };
    assert_eq!((read.pts, read.dts.unwrap_or(pts), &read.payload), (Some(pts), dts, &pes.payload));
    assert_eq!(read.random_access, pes.random_access);
}

/// Passes a payload to every function that reads payloads.
fn payload(pes: &Pes) {
    let bytes = &pes.payload[..];
    let lengths = nal::to_lengths(bytes);
    let annex_b = nal::to_annex_b(&lengths).expect("our own lengths");
    assert!(nal::AnnexB::new(&annex_b).eq(nal::AnnexB::new(bytes)));
    for nal in nal::AnnexB::new(bytes) {
        let _ = (h264::is_recovery_point(nal), h264::set_id(nal), h265::set_id(nal));
        if let Ok(config) = h264::Config::of_sets(&[nal], &[nal]) {
            assert!(config.parameter_sets().eq([nal, nal]));
        }
        if let Ok(config) = h265::Config::of_sets(&[], &[nal], &[nal]) {
            assert!(config.parameter_sets().eq([nal, nal]));
        }
    }
    if let Ok(adts) = aac::Adts::read(bytes)
        && let Ok(config) = aac::Config::of_adts(&adts)
        && let Some(head) = config.adts(adts.frame_bytes - adts.header_bytes)
    {
        let read = aac::Adts::read(&head).expect("our own header");
        assert_eq!((read.sample_rate, read.object_type), (adts.sample_rate, adts.object_type));
    }
    if let Ok(element) = latm::element_bytes(bytes) {
        let mut reader = latm::Reader::new();
        if let Ok(frames) = reader.read(bytes.get(..element).unwrap_or(bytes)) {
            assert!(frames.len() <= 64 && frames.iter().map(|frame| frame.len()).sum::<usize>() <= element);
        }
    }
    if let Ok(control) = opus::Control::read(bytes) {
        assert!(control.header_bytes <= bytes.len() && control.packet_bytes > 0);
    }
    let _ = opus::packet_samples(bytes);
    assert!(
        ac3::Syncframe::read(bytes).is_ok_and(|frame| frame.bytes >= 6)
            || ac3::Syncframe::read(bytes).is_err()
    );
    assert!(mp3::Header::read(bytes).is_ok_and(|one| one.samples > 0) || mp3::Header::read(bytes).is_err());
}
