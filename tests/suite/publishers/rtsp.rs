//! A publisher over RTSP that is given as its session description and a list of its packets, so that a test can change
//! each of them.

use std::collections::VecDeque;

use bytes::Bytes;
use data_encoding::BASE64;
use netsim::publisher::Publisher;

use super::sender::{ByteSender, Opening, Piece};
use super::units::{Unit, sets};

/// Maximum size of an RTP payload.
const PAYLOAD: usize = 1200;
/// RTP payload types of video and audio.
pub const TYPES: [u8; 2] = [96, 97];
/// RTP clock ticks per millisecond, of video and audio.
const TICKS: [u64; 2] = [90, 48];
pub const SSRCS: [u32; 2] = [0x1111_1111, 0x2222_2222];
/// Time between sender reports, in milliseconds.
const REPORTS_MS: i64 = 2_000;
/// The end of 1999 on the NTP clock, in milliseconds.
const WALL: i64 = 3_155_673_600_000;

/// An RTP or RTCP packet.
#[derive(Debug, Clone)]
pub struct Packet {
    pub at: i64,
    /// Index of the section in the session description.
    pub section: usize,
    pub is_rtcp: bool,
    pub marker: bool,
    pub payload_type: u8,
    pub number: u16,
    pub timestamp: u32,
    pub ssrc: u32,
    /// First byte of the header. `extra` follows the fixed header.
    pub flags: u8,
    pub extra: Vec<u8>,
    /// The payload of an RTP packet, or the whole RTCP packet.
    pub payload: Vec<u8>,
}

impl Packet {
    pub fn bytes(&self) -> Vec<u8> {
        if self.is_rtcp {
            return self.payload.clone();
        }
        let mut bytes = vec![self.flags, u8::from(self.marker) << 7 | self.payload_type];
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.timestamp.to_be_bytes());
        bytes.extend_from_slice(&self.ssrc.to_be_bytes());
        bytes.extend_from_slice(&self.extra);
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// Everything that a publisher sends.
#[derive(Debug)]
pub struct Plan {
    pub sdp: String,
    /// For each section to set up, in this order: the path below the stream's, and the channel.
    pub setups: Vec<(&'static str, u8)>,
    /// Channel of each section's packets.
    pub channels: [u8; 2],
    pub packets: Vec<Packet>,
    /// Changes the bytes after all packets have been written.
    pub bytes: Option<fn(&mut Vec<Piece>)>,
    /// True if sequence numbers are assigned anew after all changes.
    pub renumbers: bool,
}

impl Plan {
    /// Creates the plan of an ordinary encoder.
    pub fn new(publisher: &Publisher, units: &[Unit]) -> Self {
        let mut packets = Vec::new();
        let (mut numbers, mut reported) = ([1_000, 2_000], [500, 700]);
        for unit in units {
            let section = unit.track();
            if unit.at >= reported[section] {
                reported[section] += REPORTS_MS;
                packets.extend(report(publisher, section, unit.at));
            }
            for packet in packets_of(unit) {
                numbers[section] += 1;
                packets.push(Packet { number: numbers[section], ..packet });
            }
        }
        Self {
            sdp: sdp(),
            setups: vec![("trackID=0", 0), ("trackID=1", 2)],
            channels: [0, 2],
            packets,
            bytes: None,
            renumbers: false,
        }
    }

    /// Returns the RTP packets of a section.
    pub fn of_section(&mut self, section: usize) -> impl Iterator<Item = &mut Packet> {
        self.packets.iter_mut().filter(move |packet| packet.section == section && !packet.is_rtcp)
    }

    /// Replaces each RTP packet by those that `change` makes of it. Sequence numbers are assigned anew.
    pub fn expand(&mut self, change: impl Fn(Packet) -> Vec<Packet>) {
        let packets = std::mem::take(&mut self.packets);
        let change = |packet: Packet| if packet.is_rtcp { vec![packet] } else { change(packet) };
        self.packets = packets.into_iter().flat_map(change).collect();
        self.renumbers = true;
    }

    pub fn into_sender(mut self, stream: &str) -> ByteSender {
        if self.renumbers {
            let mut numbers = [1_000_u16, 2_000];
            for packet in self.packets.iter_mut().filter(|packet| !packet.is_rtcp) {
                packet.number = numbers[packet.section];
                numbers[packet.section] = numbers[packet.section].wrapping_add(1);
            }
        }
        self.packets.sort_by_key(|packet| packet.at);
        let url = format!("rtsp://127.0.0.1:5554/live/{stream}");
        let mut steps = VecDeque::new();
        let mut request = |head: String, body: &str| {
            let length = if body.is_empty() {
                String::new()
            } else {
                format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n", body.len())
            };
            let text = format!("{head}\r\nCSeq: {}\r\n{length}\r\n{body}", steps.len() + 1);
            steps.push_back((Bytes::from(text), "RTSP/1.0 200"));
        };
        request(format!("ANNOUNCE {url} RTSP/1.0"), &self.sdp);
        for (n, (path, channel)) in self.setups.iter().enumerate() {
            let transport = format!("RTP/AVP/TCP;unicast;interleaved={channel}-{};mode=record", channel + 1);
            let session = if n == 0 { "" } else { "\r\nSession: SESSION" };
            request(format!("SETUP {url}/{path} RTSP/1.0\r\nTransport: {transport}{session}"), "");
        }
        request(format!("RECORD {url} RTSP/1.0\r\nSession: SESSION\r\nRange: npt=0.000-"), "");
        let mut pieces: Vec<Piece> =
            self.packets.iter().map(|packet| (packet.at, frame(self.channels, packet))).collect();
        if let Some(change) = self.bytes {
            change(&mut pieces);
        }
        let refusals = &["RTSP/1.0 4", "RTSP/1.0 5"];
        let opening = Opening { steps, refusals, echoes: None, session: Some("SESSION") };
        let goodbye = format!("TEARDOWN {url} RTSP/1.0\r\nCSeq: 99\r\nSession: SESSION\r\n\r\n");
        ByteSender::new(opening, pieces, goodbye.into())
    }
}

/// Returns a packet as it is interleaved in the connection (RFC 2326 §10.12).
fn frame(channels: [u8; 2], packet: &Packet) -> Bytes {
    let bytes = packet.bytes();
    let channel = channels[packet.section] + u8::from(packet.is_rtcp);
    let mut frame = vec![b'$', channel];
    frame.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&bytes);
    frame.into()
}

/// Returns an RTP timestamp.
fn ticks(section: usize, raw: u64, cts: i64) -> u32 {
    raw.wrapping_add(cts.cast_unsigned()).wrapping_mul(TICKS[section]) as u32
}

/// Returns a unit as packets, whose sequence numbers are assigned later.
fn packets_of(unit: &Unit) -> Vec<Packet> {
    let section = unit.track();
    let packet = |payload: Vec<u8>, marker: bool| Packet {
        at: unit.at,
        section,
        is_rtcp: false,
        marker,
        payload_type: TYPES[section],
        number: 0,
        timestamp: ticks(section, unit.raw, unit.cts),
        ssrc: SSRCS[section],
        flags: 0x80,
        extra: Vec::new(),
        payload,
    };
    if !unit.is_video {
        return vec![packet(aac(&[&unit.payload]), true)];
    }
    let payloads = nal_payloads(unit.nal());
    let last = payloads.len() - 1;
    payloads.into_iter().enumerate().map(|(n, payload)| packet(payload, n == last)).collect()
}

/// Returns the payloads of a NAL unit: one single NAL unit packet, or several FU-A fragments (RFC 6184 §5.6,
/// §5.8).
pub fn nal_payloads(nal: &[u8]) -> Vec<Vec<u8>> {
    if nal.len() <= PAYLOAD {
        return vec![nal.to_vec()];
    }
    let parts: Vec<&[u8]> = nal[1..].chunks(PAYLOAD - 2).collect();
    let last = parts.len() - 1;
    let unit = |(n, part): (usize, &&[u8])| {
        let head = u8::from(n == 0) << 7 | u8::from(n == last) << 6 | nal[0] & 0x1f;
        [&[nal[0] & 0x60 | 28, head][..], part].concat()
    };
    parts.iter().enumerate().map(unit).collect()
}

/// Returns a payload of AAC frames (RFC 3640 §3.2.1, AAC-hbr).
pub fn aac(frames: &[&[u8]]) -> Vec<u8> {
    let mut payload = u16::try_from(frames.len() * 16).unwrap().to_be_bytes().to_vec();
    frames.iter().for_each(|frame| {
        payload.extend_from_slice(&(u16::try_from(frame.len()).unwrap() << 3).to_be_bytes())
    });
    frames.iter().for_each(|frame| payload.extend_from_slice(frame));
    payload
}

/// Returns the sender report due at `at` (RFC 3550 §6.4.1), if the publisher sends one.
fn report(publisher: &Publisher, section: usize, at: i64) -> Option<Packet> {
    let report = publisher.report(section, at)?;
    let wall = (WALL + report.wall).cast_unsigned();
    let ntp = ((wall / 1000) << 32) | (((wall % 1000) << 32) / 1000);
    let mut payload = vec![0x80, 200, 0, 6];
    payload.extend_from_slice(&SSRCS[section].to_be_bytes());
    payload.extend_from_slice(&ntp.to_be_bytes());
    payload.extend_from_slice(&ticks(section, report.raw, 0).to_be_bytes());
    payload.extend_from_slice(&[0; 8]);
    Some(rtcp(at, section, payload))
}

/// Creates an RTCP packet.
pub const fn rtcp(at: i64, section: usize, payload: Vec<u8>) -> Packet {
    Packet {
        at,
        section,
        is_rtcp: true,
        marker: false,
        payload_type: 0,
        number: 0,
        timestamp: 0,
        ssrc: 0,
        flags: 0,
        extra: Vec::new(),
        payload,
    }
}

/// Returns the session description of both sections.
pub fn sdp() -> String {
    let [sps, pps] = sets().map(|set| BASE64.encode(&set));
    [
        "v=0",
        "o=- 1 1 IN IP4 127.0.0.1",
        "s=odd",
        "c=IN IP4 0.0.0.0",
        "t=0 0",
        "m=video 0 RTP/AVP 96",
        "a=rtpmap:96 H264/90000",
        &format!("a=fmtp:96 packetization-mode=1;profile-level-id=4d401e;sprop-parameter-sets={sps},{pps}"),
        "a=control:trackID=0",
        "m=audio 0 RTP/AVP 97",
        "a=rtpmap:97 mpeg4-generic/48000/2",
        "a=fmtp:97 streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3;config=1190",
        "a=control:trackID=1",
        "",
    ]
    .join("\r\n")
}
