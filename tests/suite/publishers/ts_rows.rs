//! Rows of MPEG-TS: tables, PES packets and transport packets of real multiplexers.

use super::judge::Outcome;
use super::sender::Piece;
use super::ts::{AAC, H264, PMT, Packet, Pes, Plan, SOUND, Tables, VIDEO, recut, section};
use super::units::{sets, sps};
use super::{ALL, EXACT, Gets, Oddity, Row};
use crate::support::world::Over;

const fn row(name: &'static str, change: fn(&mut Plan), gets: Gets) -> Row {
    Row { name, over: &[Over::Srt], oddity: Oddity::Ts(change), gets }
}

/// Viewers get all pictures, and need not get audio.
const SILENT: Gets = ALL.without(0, usize::MAX);

/// All rows of MPEG-TS.
pub const ROWS: &[Row] = &[
    row("messages are cut anywhere", |p| p.bytes = Some(|b| recut(b, &[1316, 1000, 188, 5, 700, 1])), EXACT),
    row("packets have 192 bytes", |p| p.bytes = Some(|b| wider(b, 4, 0)), EXACT),
    row("packets have 204 bytes", |p| p.bytes = Some(|b| wider(b, 0, 16)), EXACT),
    row(
        "garbage stands between packets now and then",
        |p| p.bytes = Some(|b| garbage(b)),
        ALL.without(200, 200).untimed(),
    ),
    row(
        "a descriptor of a stream is longer than its list",
        |p| p.tables[0].streams[1].2 = vec![10, 40, 1, 2],
        EXACT,
    ),
    row(
        "a descriptor of the program is longer than its list",
        |p| p.tables[0].info = vec![5, 200, b'x'],
        EXACT,
    ),
    row("a list of descriptors is longer than the table", long_list, EXACT),
    row("tables have another version every second", versions, EXACT),
    row("the PIDs of streams change in mid-stream", other_pids, ALL.without(1, 5)),
    row("the types of two PIDs are swapped in mid-stream", swapped_pids, ALL.without(60, 20)),
    row("the tables come late", |p| p.tables[0].from = 700, ALL.without(50, 100)),
    row("the tables come once", |p| p.packets = Some(tables_once), EXACT),
    row("the tables have wrong check sums now and then", |p| p.packets = Some(spoilt_tables), EXACT),
    row("sections are split over packets", |p| (p.tables[0].info, p.section_bytes) = (vec![0; 0], 20), EXACT),
    row(
        "the PMT has 700 bytes",
        |p| p.tables[0].info = [&[5, 255][..], &[b'x'; 255], &[5, 255], &[b'y'; 255]].concat(),
        EXACT,
    ),
    row("the PAT names a network", |p| p.tables[0].programs.push((0, 0x10)), EXACT),
    row("there is a second program", |p| p.tables[0].programs.push((2, 0x1100)), EXACT),
    row("there is no clock", |p| p.has_pcr = false, EXACT),
    row("the clock is on a PID of its own", |p| p.tables[0].pcr = 0x1ff, EXACT),
    row("the clock is on no PID", |p| p.tables[0].pcr = 0x1fff, EXACT),
    row("null packets come between the others", |p| p.packets = Some(null_packets), EXACT),
    row("every packet comes twice", |p| p.packets = Some(twice), EXACT),
    row("packets have an adaptation field alone", |p| p.packets = Some(adaptation_alone), EXACT),
    row("adaptation fields have private data", |p| p.packets = Some(private_data), EXACT),
    row("packets are marked as damaged now and then", |p| p.packets = Some(damaged), EXACT),
    row(
        "the sound is scrambled",
        |p| p.packets = Some(|b| of_pid(b, SOUND, |one| one[3] |= 0x80)),
        SILENT.checked(no_sound),
    ),
    row(
        "counters are zero for ever",
        |p| p.packets = Some(|b| every_packet(b, |one| one[3] &= 0xf0)),
        ALL.without(500, 938).untimed(),
    ),
    row("a counter jumps and nothing is lost", |p| p.packets = Some(jumps), ALL.without(50, 2)),
    row("a discontinuity is announced", |p| p.packets = Some(announced), EXACT),
    row(
        "PES packets of sound have no length",
        |p| p.of_pid(SOUND).for_each(|pes| pes.bounded = false),
        ALL.without(0, 2),
    ),
    row(
        "PES packets of pictures have a length",
        |p| p.of_pid(VIDEO).for_each(|pes| pes.bounded = true),
        EXACT,
    ),
    row("a PES packet has eight frames of sound", |p| packed(p, 8), EXACT),
    row("frames of sound are split over PES packets", split_sound, ALL.without(0, 3)),
    row("every other PES packet of sound has no time", untimed_sound, EXACT.exactly(25)),
    row(
        "sound is on the stream id of private data",
        |p| p.of_pid(SOUND).for_each(|pes| pes.stream_id = 0xbd),
        EXACT,
    ),
    row("there is a stream of private data", |p| another(p, 6, Vec::new()), EXACT),
    row("there is teletext", |p| another(p, 6, vec![0x56, 5, b'd', b'e', b'u', 8, 0]), EXACT),
    row(
        "there are subtitles of DVB",
        |p| another(p, 6, vec![0x59, 8, b'd', b'e', b'u', 16, 0, 1, 0, 1]),
        EXACT,
    ),
    row("there is a stream of an unknown type", |p| another(p, 0xc0, Vec::new()), EXACT),
    row("there are cue messages of SCTE 35", |p| another(p, 0x86, Vec::new()), EXACT),
    row("sound is announced and never comes", |p| p.pes.retain(|pes| pes.pid == VIDEO), SILENT),
    row("video is announced as first and as last stream", |p| p.tables[0].streams.reverse(), EXACT),
    row("a stream is announced twice", |p| p.tables[0].streams.push((AAC, SOUND, Vec::new())), EXACT),
    row("pictures have no delimiters", |p| pictures(p, |bytes| drop(bytes.drain(..6))), EXACT),
    row("start codes have three bytes", |p| pictures(p, short_codes), EXACT),
    row("zero bytes stand behind pictures", |p| pictures(p, |bytes| bytes.extend_from_slice(&[0; 9])), EXACT),
    row("filler stands in pictures", |p| pictures(p, filler), EXACT),
    row("sets come once", |p| p.of_pid(VIDEO).skip(1).for_each(|pes| without_sets(&mut pes.payload)), EXACT),
    row("sets change the size of pictures", larger_sets, EXACT.checked(larger)),
    row("pictures of B-frames have a PTS alone", presented, ALL.exactly(90).reorders()),
    row(
        "the DTS is behind the PTS",
        |p| p.of_pid(VIDEO).for_each(|pes| pes.dts = pes.pts.map(|pts| pts + 900)),
        ALL.exactly(15),
    ),
    row("a picture has no time now and then", no_times, ALL.without(20, 0).exactly(90)),
    row(
        "the random access indicator is never set",
        |p| p.of_pid(VIDEO).for_each(|pes| pes.key = false),
        EXACT,
    ),
    row(
        "the random access indicator is always set",
        |p| p.of_pid(VIDEO).for_each(|pes| pes.key = true),
        EXACT,
    ),
    row("PES packets are padded", padding, EXACT),
];

fn no_sound(outcome: &Outcome) -> Result<(), String> {
    let heard = outcome.views.iter().any(|view| view.of_kind(false).next().is_some());
    if heard { Err("there is sound".to_owned()) } else { Ok(()) }
}

fn larger(outcome: &Outcome) -> Result<(), String> {
    let has = outcome.broadcast.contains("1280") && outcome.broadcast.contains("720");
    if has { Ok(()) } else { Err(outcome.broadcast.clone()) }
}

/// Adds bytes before and after each transport packet.
fn wider(pieces: &mut Vec<Piece>, before: usize, behind: usize) {
    let wide = |packet: &[u8]| [&vec![0; before][..], packet, &vec![0xee; behind]].concat();
    let pieces_of = |(at, bytes): Piece| {
        let packets: Vec<Vec<u8>> = bytes.chunks(188).map(wide).collect();
        packets.chunks(6).map(|some| (at, some.concat().into())).collect::<Vec<Piece>>()
    };
    *pieces = std::mem::take(pieces).into_iter().flat_map(pieces_of).collect();
}

fn garbage(pieces: &mut [Piece]) {
    for (n, (_, bytes)) in pieces.iter_mut().enumerate() {
        if n % 100 == 50 && bytes.len() < 1200 {
            *bytes = [&[0x47, 1, 2, 3, 0x47, 0xff, 9][..], &bytes[..]].concat().into();
        }
    }
}

/// Makes the last stream of the PMT state more descriptor bytes than follow.
fn long_list(plan: &mut Plan) {
    plan.packets = Some(|packets| {
        for (_, packet) in packets.iter_mut().filter(|(_, packet)| pid(packet) == PMT) {
            let body = [0xe1, 0, 0xf0, 0, H264, 0xe1, 0, 0xf0, 0, AAC, 0xe1, 1, 0xf0, 90];
            let section = section(2, 1, 0, &body);
            packet[5..5 + section.len()].copy_from_slice(&section);
        }
    });
}

fn versions(plan: &mut Plan) {
    let version = |n: u8| Tables { from: i64::from(n) * 1_000, version: n % 32, ..Tables::default() };
    plan.tables = (0..20).map(version).collect();
}

/// Returns the time of the first key frame after `at`. The caller changes the tables from this time on.
fn key_behind(plan: &Plan, at: i64) -> i64 {
    plan.pes.iter().find(|pes| pes.pid == VIDEO && pes.key && pes.at > at).map(|pes| pes.at).unwrap()
}

fn other_pids(plan: &mut Plan) {
    let from = key_behind(plan, 7_000);
    let streams = vec![(H264, 0x200, Vec::new()), (AAC, 0x201, Vec::new())];
    plan.tables.push(Tables { from, version: 1, pcr: 0x200, streams, ..Tables::default() });
    plan.pes.iter_mut().filter(|pes| pes.at >= from).for_each(|pes| pes.pid += 0x100);
    // Tables are written before each PES packet with the key flag, so the first packet on the new PID must have the
    // flag.
    plan.pes.iter_mut().filter(|pes| pes.pid == 0x200 && pes.at == from).for_each(|pes| pes.key = true);
}

fn swapped_pids(plan: &mut Plan) {
    let from = key_behind(plan, 7_000);
    let streams = vec![(H264, SOUND, Vec::new()), (AAC, VIDEO, Vec::new())];
    plan.tables.push(Tables { from, version: 1, pcr: SOUND, streams, ..Tables::default() });
    for pes in plan.pes.iter_mut().filter(|pes| pes.at >= from) {
        pes.pid = if pes.pid == VIDEO { SOUND } else { VIDEO };
    }
}

fn pid(packet: &[u8; 188]) -> u16 {
    u16::from_be_bytes([packet[1] & 0x1f, packet[2]])
}

fn every_packet(packets: &mut [Packet], change: fn(&mut [u8; 188])) {
    packets.iter_mut().for_each(|(_, packet)| change(packet));
}

fn of_pid(packets: &mut [Packet], of: u16, change: fn(&mut [u8; 188])) {
    packets.iter_mut().filter(|(_, packet)| pid(packet) == of).for_each(|(_, packet)| change(packet));
}

fn is_table(packet: &[u8; 188]) -> bool {
    matches!(pid(packet), 0 | PMT)
}

fn tables_once(packets: &mut Vec<Packet>) {
    let mut n = 0;
    packets.retain(|(_, packet)| {
        n += usize::from(is_table(packet));
        !is_table(packet) || n <= 2
    });
}

fn spoilt_tables(packets: &mut Vec<Packet>) {
    for (_, packet) in packets.iter_mut().filter(|(_, packet)| is_table(packet)).skip(2).step_by(3) {
        packet[12] ^= 1;
    }
}

/// Inserts a packet before every fifth one.
fn between(packets: &mut Vec<Packet>, make: impl Fn(&[u8; 188]) -> [u8; 188]) {
    let mut out = Vec::new();
    for (n, (at, packet)) in packets.drain(..).enumerate() {
        if n % 5 == 4 {
            out.push((at, make(&packet)));
        }
        out.push((at, packet));
    }
    *packets = out;
}

fn null_packets(packets: &mut Vec<Packet>) {
    between(packets, |_| {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        packet
    });
}

fn twice(packets: &mut Vec<Packet>) {
    *packets = packets.drain(..).flat_map(|packet| [packet, packet]).collect();
}

/// Inserts packets that have only an adaptation field, and the counter of the packet before them (§2.4.3.3).
fn adaptation_alone(packets: &mut Vec<Packet>) {
    between(packets, |next| {
        let mut packet = [0xff; 188];
        packet[..3].copy_from_slice(&next[..3]);
        packet[1] &= 0x1f;
        packet[3] = 0x20 | next[3].wrapping_sub(1) & 15;
        (packet[4], packet[5]) = (183, 0);
        packet
    });
}

/// Turns the stuffing of adaptation fields into private data.
fn private_data(packets: &mut Vec<Packet>) {
    every_packet(packets, |packet| {
        if packet[3] & 0x20 != 0 && packet[4] > 20 && packet[5] == 0 {
            (packet[5], packet[6]) = (2, packet[4] - 2);
        }
    });
}

/// Inserts, before packets, damaged copies that are marked by `transport_error_indicator`.
fn damaged(packets: &mut Vec<Packet>) {
    between(packets, |next| {
        let mut packet = *next;
        packet[1] |= 0x80;
        packet[100] ^= 0x55;
        packet
    });
}

fn jumps(packets: &mut Vec<Packet>) {
    for (at, packet) in packets.iter_mut() {
        if *at > 6_000 && pid(packet) == VIDEO {
            packet[3] = packet[3] & 0xf0 | packet[3].wrapping_add(5) & 15;
        }
    }
}

/// Sets `discontinuity_indicator` on packets with a clock reference.
fn announced(packets: &mut Vec<Packet>) {
    for (at, packet) in packets.iter_mut() {
        if *at % 1_000 < 40 && packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x10 != 0 {
            packet[5] |= 0x80;
        }
    }
}

/// Packs every `count` audio frames into one PES packet, which is sent with the last of them.
fn packed(plan: &mut Plan, count: usize) {
    let sounds: Vec<Pes> = plan.of_pid(SOUND).map(|pes| pes.clone()).collect();
    plan.pes.retain(|pes| pes.pid == VIDEO);
    plan.insert(sounds.chunks(count).map(|some| Pes {
        at: some[some.len() - 1].at,
        payload: some.iter().flat_map(|pes| pes.payload.clone()).collect(),
        ..some[0].clone()
    }));
}

/// Makes each audio PES packet carry the end of one frame and the beginning of the next.
fn split_sound(plan: &mut Plan) {
    let mut rest = Vec::new();
    for pes in plan.of_pid(SOUND) {
        let behind = pes.payload.split_off(pes.payload.len() / 2);
        pes.payload = [std::mem::replace(&mut rest, behind), std::mem::take(&mut pes.payload)].concat();
    }
}

fn untimed_sound(plan: &mut Plan) {
    plan.of_pid(SOUND).skip(1).step_by(2).for_each(|pes| pes.pts = None);
}

/// Adds a stream with a PES packet every 100 ms.
fn another(plan: &mut Plan, kind: u8, descriptors: Vec<u8>) {
    plan.tables[0].streams.insert(1, (kind, 0x180, descriptors));
    let pes = |n: i64| Pes {
        at: n * 100,
        pid: 0x180,
        stream_id: 0xbd,
        pts: Some(n.unsigned_abs() * 9_000),
        dts: None,
        key: false,
        bounded: true,
        payload: vec![0x10; 120],
    };
    plan.insert((1..200).map(pes));
}

fn pictures(plan: &mut Plan, change: fn(&mut Vec<u8>)) {
    plan.of_pid(VIDEO).for_each(|pes| change(&mut pes.payload));
}

fn short_codes(bytes: &mut Vec<u8>) {
    let mut out = Vec::new();
    for byte in bytes.drain(..) {
        out.push(byte);
        if out.ends_with(&[0, 0, 0, 1]) {
            out.truncate(out.len() - 4);
            out.extend_from_slice(&[0, 0, 1]);
        }
    }
    *bytes = out;
}

/// Inserts a filler data NAL unit (type 12) before the picture.
fn filler(bytes: &mut Vec<u8>) {
    let unit = [&[0, 0, 0, 1, 12][..], &[0xff; 30], &[0x80]].concat();
    bytes.splice(6..6, unit);
}

fn without_sets(bytes: &mut Vec<u8>) {
    let [sps, pps] = sets();
    let code = [0, 0, 0, 1];
    let both = [&code[..], &sps, &code, &pps].concat();
    if bytes[6..].starts_with(&both) {
        bytes.drain(6..6 + both.len());
    }
}

fn larger_sets(plan: &mut Plan) {
    for pes in plan.of_pid(VIDEO).filter(|pes| pes.key && pes.at > 9_000) {
        without_sets(&mut pes.payload);
        let (sps, [_, pps]) = (sps(80, 45), sets());
        let both = [&[0, 0, 0, 1][..], &sps, &[0, 0, 0, 1], &pps].concat();
        pes.payload.splice(6..6, both);
    }
}

/// Sends pictures in the order I P B B, with presentation times but without decoding times.
fn presented(plan: &mut Plan) {
    let mut source = super::units::source().reordering(true);
    let video = std::iter::from_fn(|| Some(source.next_unit())).filter(|unit| unit.is_video);
    for (pes, unit) in plan.of_pid(VIDEO).zip(video) {
        (pes.pts, pes.dts) = (pes.pts.map(|pts| pts + u64::from(unit.cts_ms) * 90), None);
    }
}

fn no_times(plan: &mut Plan) {
    plan.of_pid(VIDEO).skip(20).step_by(25).for_each(|pes| (pes.pts, pes.dts) = (None, None));
}

/// Inserts padding PES packets (stream id 0xbe).
fn padding(plan: &mut Plan) {
    plan.tables[0].streams.push((6, 0x181, Vec::new()));
    let pes = |n: i64| Pes {
        at: n * 200,
        pid: 0x181,
        stream_id: 0xbe,
        pts: None,
        dts: None,
        key: false,
        bounded: true,
        payload: vec![0xff; 60],
    };
    plan.insert((1..100).map(pes));
}
