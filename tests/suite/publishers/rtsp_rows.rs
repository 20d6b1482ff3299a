//! Rows of RTSP and RTP: session descriptions, channels and packets of real cameras and encoders.

use super::judge::Outcome;
use super::rtsp::{Packet, Plan, SSRCS, TYPES, aac, rtcp, sdp};
use super::sender::Piece;
use super::units::{adts, sets, sps};
use super::{ALL, Gets, Oddity, Row, refused};
use crate::support::world::Over;

const fn row(name: &'static str, change: fn(&mut Plan), gets: Gets) -> Row {
    Row { name, over: &[Over::Rtsp], oddity: Oddity::Rtsp(change), gets }
}

/// Viewers get all pictures, and need not get audio.
const SILENT: Gets = ALL.without(0, usize::MAX);
/// The pictures of one GOP may be missing.
const GOP: Gets = ALL.without(50, 3);

/// All rows of RTSP.
pub const ROWS: &[Row] = &[
    row(
        "a section is of a foreign protocol",
        |p| {
            section(
                p,
                "m=application/TP-LINK 0 RTP/AVP smart/1/90000\r\na=rtpmap:95 TP-LINK/90000\r\na=control:trackID=9\r\n",
            )
        },
        ALL,
    ),
    row(
        "a section is of metadata",
        |p| {
            section(
                p,
                "m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\na=control:trackID=9\r\n",
            )
        },
        ALL,
    ),
    row(
        "a section's port is out of range",
        |p| replace(p, "m=audio 0 ", "m=audio 99999 "),
        ALL.without(0, usize::MAX),
    ),
    row("a section's port is a range", |p| replace(p, "m=video 0 ", "m=video 0/2 "), ALL),
    row(
        "a foreign section has an rtpmap without a clock",
        |p| section(p, "m=application 0 RTP/AVP 98\r\na=rtpmap:98 odd\r\na=control:trackID=9\r\n"),
        ALL,
    ),
    row("a line has no equals sign", |p| replace(p, "t=0 0\r\n", "t=0 0\r\nnonsense\r\n"), ALL),
    row("a line is empty", |p| replace(p, "t=0 0\r\n", "t=0 0\r\n\r\n"), ALL),
    row("lines end with a line feed alone", |p| replace(p, "\r\n", "\n"), ALL),
    row("there is no version", |p| replace(p, "v=0\r\n", ""), ALL),
    row("there is no origin", |p| replace(p, "o=- 1 1 IN IP4 127.0.0.1\r\n", ""), ALL),
    row("there is no name", |p| replace(p, "s=odd\r\n", ""), ALL),
    row("there is no time", |p| replace(p, "t=0 0\r\n", ""), ALL),
    row("there is no connection", |p| replace(p, "c=IN IP4 0.0.0.0\r\n", ""), ALL),
    row("the origin has an address that is none", |p| replace(p, "IP4 127.0.0.1", "IP4 (null)"), ALL),
    row(
        "attributes are unknown",
        |p| replace(p, "t=0 0\r\n", "t=0 0\r\na=tool:odd\r\na=x-odd:1;2\r\na=\r\n"),
        ALL,
    ),
    row("names of codecs are in lower case", |p| replace(p, "H264/90000", "h264/90000"), ALL),
    row("the profile is missing", |p| replace(p, "profile-level-id=4d401e;", ""), ALL),
    row("the description has no parameter sets", without_sprop, ALL),
    row("the parameter sets of the description are broken", broken_sprop, ALL),
    row("the parameter sets of the description are others than in band", other_sprop, ALL.checked(real_size)),
    row(
        "the description of the sound has no configuration",
        |p| replace(p, ";config=1190", ""),
        ALL.without(50, usize::MAX),
    ),
    row("control addresses are absolute", absolute, ALL),
    row("the sound is described first", sound_first, ALL),
    row("the sound is set up first", |p| p.setups.reverse(), ALL),
    row("channels are far apart", |p| channels(p, [10, 200]), ALL),
    row("channels are in falling order", |p| channels(p, [2, 0]), ALL),
    row("the sound is never set up", |p| p.setups.truncate(1), SILENT),
    row("there are frames of channels that were not set up", foreign_channels, ALL),
    row("bytes stand between frames now and then", |p| p.bytes = Some(|b| stray_bytes(b)), GOP),
    row("a line feed stands behind each frame", |p| p.bytes = Some(|b| line_feeds(b)), ALL),
    row("frames have no bytes now and then", |p| p.bytes = Some(|b| empty_frames(b)), ALL),
    row("requests come between frames", |p| p.bytes = Some(|b| keep_alive(b)), ALL),
    row("another source follows in mid-stream", other_source, GOP.told(&["jump"])),
    row("a foreign source sends between the packets", foreign_source, ALL),
    row("a goodbye comes in mid-stream and the source goes on", |p| p.packets.extend(goodbyes()), ALL),
    row("reports are garbage", |p| p.packets.extend(garbage()), ALL),
    row("reports are of an unknown source", |p| p.packets.extend(strange_reports()), ALL),
    row(
        "packets are padded",
        |p| {
            each(p, 0, |one| {
                one.flags |= 0x20;
                one.payload.extend_from_slice(&[0, 0, 0, 4])
            })
        },
        ALL,
    ),
    row(
        "packets name contributing sources",
        |p| {
            each(p, 0, |one| {
                one.flags |= 2;
                one.extra = vec![7; 8]
            })
        },
        ALL,
    ),
    row(
        "packets have extensions",
        |p| {
            each(p, 0, |one| {
                one.flags |= 0x10;
                one.extra = [&[0xbe, 0xde, 0, 2][..], &[0x13, 1, 2, 3, 4, 0, 0, 0]].concat()
            })
        },
        ALL,
    ),
    row("packets have a foreign payload type now and then", foreign_type, ALL),
    row(
        "packets have no payload now and then",
        |p| often(p, |one| vec![Packet { payload: Vec::new(), ..one.clone() }]),
        ALL,
    ),
    row(
        "sequence numbers wrap",
        |p| p.packets.iter_mut().for_each(|one| one.number = one.number.wrapping_add(65_000 - 1_000)),
        ALL,
    ),
    row(
        "sequence numbers jump and nothing is lost",
        |p| {
            p.packets
                .iter_mut()
                .filter(|one| one.at > 8_000)
                .for_each(|one| one.number = one.number.wrapping_add(5_000))
        },
        GOP.untimed().exactly(100),
    ),
    row(
        "packets come twice",
        |p| {
            p.expand(|one| vec![one]);
            twice(p)
        },
        ALL,
    ),
    row("neighbours are out of order", out_of_order, ALL),
    row("the marker is never set", |p| each(p, 0, |one| one.marker = false), ALL.without(1, 0)),
    row("the marker is always set", |p| each(p, 0, |one| one.marker = true), ALL),
    row("the marker of the sound is never set", |p| each(p, 1, |one| one.marker = false), ALL),
    row(
        "units are of reserved types",
        |p| often(p, |one| [0, 30, 31].map(|kind| unit(one, &[0x60 | kind, 1, 2, 3])).to_vec()),
        ALL,
    ),
    row(
        "units have a delimiter and information",
        |p| often(p, |one| vec![unit(one, &[9, 0xf0]), unit(one, &[6, 5, 1, 7, 0x80])]),
        ALL,
    ),
    row("a start code stands in front of units", |p| each(p, 0, start_code), ALL),
    row("parameter sets come in STAP-A", |p| sets_in_stap(p, &[]), ALL),
    row("zero bytes stand behind a STAP-A", |p| sets_in_stap(p, &[0, 0, 0]), ALL),
    row("a STAP-A has a unit of length zero", |p| sets_in_stap(p, &[0, 0]), ALL),
    row(
        "a STAP-A is cut short",
        |p| often(p, |one| vec![unit(one, &[0x78, 0, 40, 0x67, 1])]),
        ALL.without(500, 2).untimed(),
    ),
    row("parameter sets in band change the size of pictures", larger_sets, ALL.checked(larger)),
    row("single units are larger than a packet should be", whole_units, ALL),
    row("fragments have no end now and then", |p| some_fragments(p, 0x40), ALL.without(500, 2).untimed()),
    row(
        "fragments have no beginning now and then",
        |p| some_fragments(p, 0x80),
        ALL.without(500, 2).untimed(),
    ),
    row(
        "fragments have one byte now and then",
        |p| often(p, |one| vec![unit(one, &[0x7c])]),
        ALL.without(500, 2).untimed(),
    ),
    row(
        "packets of a picture differ in their timestamps",
        |p| {
            each(p, 0, |one| {
                if !one.marker {
                    one.timestamp = one.timestamp.wrapping_sub(1)
                }
            })
        },
        ALL.without(20, 2),
    ),
    row("three frames of sound are in a packet", three_frames, ALL),
    row(
        "sound is ADTS",
        |p| {
            replace(p, "mpeg4-generic/48000/2", "MP4A-ADTS/48000/2");
            each(p, 1, with_adts)
        },
        SILENT,
    ),
    row(
        "sound in its packets is ADTS",
        |p| {
            each(p, 1, |one| {
                let frame = one.payload[4..].to_vec();
                one.payload = aac(&[&[&adts(frame.len())[..], &frame].concat()])
            })
        },
        ALL,
    ),
    row(
        "sound packets are empty now and then",
        |p| {
            each(p, 1, |one| {
                if one.number % 40 == 7 {
                    one.payload.clear()
                }
            })
        },
        ALL.without(0, 60),
    ),
    row(
        "sound packets are garbage now and then",
        |p| {
            each(p, 1, |one| {
                if one.number % 40 == 7 {
                    one.payload = vec![0xff; 30]
                }
            })
        },
        ALL.without(0, 60),
    ),
    row(
        "no section is carried",
        |p| p.sdp = sdp().replace("H264", "odd").replace("mpeg4-generic", "odder"),
        refused("RTSP/1.0 4"),
    ),
];

fn larger(outcome: &Outcome) -> Result<(), String> {
    let has = outcome.broadcast.contains("1280") && outcome.broadcast.contains("720");
    if has { Ok(()) } else { Err(outcome.broadcast.clone()) }
}

fn real_size(outcome: &Outcome) -> Result<(), String> {
    if outcome.broadcast.contains("360") { Ok(()) } else { Err(outcome.broadcast.clone()) }
}

fn replace(plan: &mut Plan, from: &str, to: &str) {
    assert!(plan.sdp.contains(from), "{from}");
    plan.sdp = plan.sdp.replace(from, to);
}

/// Appends a section to the session description.
fn section(plan: &mut Plan, text: &str) {
    plan.sdp.push_str(text);
}

fn sprop(plan: &mut Plan, value: &str) {
    let begin = plan.sdp.find("sprop-parameter-sets=").unwrap();
    let end = begin + plan.sdp[begin..].find("\r\n").unwrap();
    plan.sdp.replace_range(begin..end, value);
}

/// Inserts the parameter sets in a STAP-A before key frames (RFC 6184 §5.7.1).
fn sets_in_stap(plan: &mut Plan, behind: &'static [u8]) {
    before_key_frames(plan, move |one| {
        let mut payload = vec![0x78];
        for set in sets() {
            payload.extend_from_slice(&u16::try_from(set.len()).unwrap().to_be_bytes());
            payload.extend_from_slice(&set);
        }
        payload.extend_from_slice(behind);
        vec![unit(one, &payload)]
    });
}

fn without_sprop(plan: &mut Plan) {
    sprop(plan, "");
    sets_in_stap(plan, &[]);
}

fn broken_sprop(plan: &mut Plan) {
    sprop(plan, "sprop-parameter-sets=Z0I,????");
    sets_in_stap(plan, &[]);
}

fn other_sprop(plan: &mut Plan) {
    let (sps, [_, pps]) = (sps(20, 15), sets());
    let [sps, pps] = [&sps, &pps].map(|set| data_encoding::BASE64.encode(set));
    sprop(plan, &format!("sprop-parameter-sets={sps},{pps}"));
    sets_in_stap(plan, &[]);
}

fn larger_sets(plan: &mut Plan) {
    before_key_frames(plan, |one| {
        if one.at < 9_000 {
            return Vec::new();
        }
        let (sps, [_, pps]) = (sps(80, 45), sets());
        vec![unit(one, &sps), unit(one, &pps)]
    });
}

fn absolute(plan: &mut Plan) {
    let base = "a=control:rtsp://127.0.0.1:5554/live/odd/trackID=";
    plan.sdp = plan.sdp.replace("a=control:trackID=", base);
}

fn sound_first(plan: &mut Plan) {
    let video = plan.sdp.find("m=video").unwrap();
    let sound = plan.sdp.find("m=audio").unwrap();
    let (head, video, sound) = (&plan.sdp[..video], &plan.sdp[video..sound], &plan.sdp[sound..]);
    plan.sdp = [head, sound, video].concat();
}

fn channels(plan: &mut Plan, channels: [u8; 2]) {
    plan.channels = channels;
    plan.setups = vec![("trackID=0", channels[0]), ("trackID=1", channels[1])];
}

/// Appends bytes to every `every`-th piece.
fn behind_frames(pieces: &mut [Piece], every: usize, bytes: impl Fn(usize) -> Vec<u8>) {
    for (n, (_, frame)) in pieces.iter_mut().enumerate().filter(|(n, _)| n % every == every - 1) {
        *frame = [&frame[..], &bytes(n)].concat().into();
    }
}

fn foreign_channels(plan: &mut Plan) {
    plan.bytes = Some(|pieces| behind_frames(pieces, 2, |_| [&[b'$', 77, 0, 40][..], &[0x80; 40]].concat()));
}

fn stray_bytes(pieces: &mut [Piece]) {
    behind_frames(pieces, 400, |n| vec![0xa5; 1 + n % 7]);
}

fn line_feeds(pieces: &mut [Piece]) {
    behind_frames(pieces, 1, |_| b"\r\n".to_vec());
}

fn empty_frames(pieces: &mut [Piece]) {
    behind_frames(pieces, 50, |n| vec![b'$', u8::from(n % 100 < 50) * 2, 0, 0]);
}

fn keep_alive(pieces: &mut [Piece]) {
    behind_frames(pieces, 100, |n| {
        format!("OPTIONS rtsp://127.0.0.1:5554/live/odd RTSP/1.0\r\nCSeq: {n}\r\n\r\n").into()
    });
}

fn other_source(plan: &mut Plan) {
    for one in plan.packets.iter_mut().filter(|one| one.at > 8_000) {
        one.ssrc ^= 0x5555;
        one.timestamp = one.timestamp.wrapping_add(123_456_789);
    }
    let mut numbers = [40_000_u16, 50_000];
    for one in plan.packets.iter_mut().filter(|one| one.at > 8_000 && !one.is_rtcp) {
        numbers[one.section] += 1;
        one.number = numbers[one.section];
    }
}

fn foreign_source(plan: &mut Plan) {
    let foreign = |one: &Packet| Packet { ssrc: 99, number: 7, payload: vec![0x61; 20], ..one.clone() };
    let more: Vec<Packet> =
        plan.packets.iter().filter(|one| !one.is_rtcp && one.number % 50 == 0).map(foreign).collect();
    plan.packets.extend(more);
    plan.packets.sort_by_key(|one| one.at);
}

/// Returns BYE packets of both sources (RFC 3550 §6.6). They are appended after the other packets, so the script
/// must be sorted by time.
fn goodbyes() -> Vec<Packet> {
    let bye = |section: usize| {
        rtcp(7_000, section, [&[0x81, 203, 0, 1][..], &SSRCS[section].to_be_bytes()].concat())
    };
    vec![bye(0), bye(1)]
}

fn garbage() -> Vec<Packet> {
    (1..100).map(|n| rtcp(n * 200, usize::from(n % 2 == 0), vec![n as u8; n as usize % 40])).collect()
}

fn strange_reports() -> Vec<Packet> {
    let report = |n: i64| {
        let ntp = (0xdead_beef_u64 << 32).wrapping_mul(n.unsigned_abs()).to_be_bytes();
        rtcp(n * 700, 0, [&[0x80, 200, 0, 6, 9, 9, 9, 9][..], &ntp, &[0; 12]].concat())
    };
    (1..25).map(report).collect()
}

fn each(plan: &mut Plan, section: usize, change: fn(&mut Packet)) {
    plan.of_section(section).for_each(change);
}

/// Returns a copy of a picture's packet with another payload, to be sent before it.
fn unit(of: &Packet, payload: &[u8]) -> Packet {
    Packet { marker: false, payload: payload.to_vec(), ..of.clone() }
}

/// Inserts packets before each video packet for which `is_some` is true.
fn before(plan: &mut Plan, is_some: impl Fn(&Packet) -> bool, make: impl Fn(&Packet) -> Vec<Packet>) {
    plan.expand(|packet| {
        if packet.section == 0 && is_some(&packet) {
            let mut all = make(&packet);
            all.push(packet);
            all
        } else {
            vec![packet]
        }
    });
}

/// Inserts packets before each key frame. Every key frame is fragmented, and its first fragment begins with NAL
/// unit type 5.
fn before_key_frames(plan: &mut Plan, make: impl Fn(&Packet) -> Vec<Packet>) {
    before(plan, |one| one.payload.starts_with(&[0x7c, 0x85]), make);
}

/// Inserts packets before every twentieth picture that fits into a single packet.
fn often(plan: &mut Plan, make: impl Fn(&Packet) -> Vec<Packet>) {
    before(plan, |one| one.payload[0] == 0x61 && one.number % 20 == 3, make);
}

fn foreign_type(plan: &mut Plan) {
    often(plan, |one| vec![Packet { payload_type: 33, ..one.clone() }]);
}

fn twice(plan: &mut Plan) {
    plan.renumbers = false;
    let packets = std::mem::take(&mut plan.packets);
    plan.packets = packets.into_iter().flat_map(|one| [one.clone(), one]).collect();
}

/// Swaps packets of successive pictures.
fn out_of_order(plan: &mut Plan) {
    let places: Vec<usize> = (0..plan.packets.len())
        .filter(|at| plan.packets[*at].section == 0 && !plan.packets[*at].is_rtcp)
        .collect();
    for pair in places.chunks(2).skip(20).step_by(10).filter(|pair| pair.len() == 2) {
        let (first, second) = (plan.packets[pair[0]].at, plan.packets[pair[1]].at);
        plan.packets.swap(pair[0], pair[1]);
        (plan.packets[pair[0]].at, plan.packets[pair[1]].at) = (first, second);
    }
    assert!(TYPES[0] != TYPES[1]);
}

fn start_code(one: &mut Packet) {
    if matches!(one.payload[0], 0x61 | 0x65) {
        one.payload.splice(0..0, [0, 0, 0, 1]);
    }
}

/// Joins the fragments of each NAL unit into one packet.
fn whole_units(plan: &mut Plan) {
    let mut whole: Vec<u8> = Vec::new();
    let mut packets = Vec::new();
    for packet in std::mem::take(&mut plan.packets) {
        if packet.is_rtcp || packet.section != 0 || packet.payload[0] & 0x1f != 28 {
            packets.push(packet);
            continue;
        }
        if packet.payload[1] & 0x80 != 0 {
            whole = vec![packet.payload[0] & 0x60 | packet.payload[1] & 0x1f];
        }
        whole.extend_from_slice(&packet.payload[2..]);
        if packet.payload[1] & 0x40 != 0 {
            packets.push(Packet { payload: std::mem::take(&mut whole), ..packet });
        }
    }
    plan.packets = packets;
    plan.renumbers = true;
}

/// Clears a bit of some fragment headers.
fn some_fragments(plan: &mut Plan, bit: u8) {
    let fragments = plan.of_section(0).filter(|one| one.payload[0] & 0x1f == 28 && one.payload[1] & bit != 0);
    fragments.skip(2).step_by(3).for_each(|one| one.payload[1] &= !bit);
}

/// Packs every three audio frames into one packet, which is sent at the time of the last.
fn three_frames(plan: &mut Plan) {
    let sounds: Vec<Packet> = plan.of_section(1).map(|one| one.clone()).collect();
    plan.packets.retain(|one| one.is_rtcp || one.section == 0);
    for some in sounds.chunks(3) {
        let frames: Vec<&[u8]> = some.iter().map(|one| &one.payload[4..]).collect();
        plan.packets.push(Packet { at: some[some.len() - 1].at, payload: aac(&frames), ..some[0].clone() });
    }
    plan.packets.sort_by_key(|one| one.at);
    plan.renumbers = true;
}

fn with_adts(one: &mut Packet) {
    let frame = one.payload[4..].to_vec();
    one.payload = [&adts(frame.len())[..], &frame].concat();
}
