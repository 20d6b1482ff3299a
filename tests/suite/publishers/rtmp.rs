//! A publisher over RTMP that is given as a list of its messages, so that a test can change each of them.

use std::collections::VecDeque;

use bytes::Bytes;
use flv::amf0::Value;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use netsim::MediaSource;

use super::sender::{ByteSender, Opening, Piece};
use super::units::Unit;

/// Message types (RTMP 1.0 §5.4, §7.1).
pub const SET_CHUNK_SIZE: u8 = 1;
pub const USER_CONTROL: u8 = 4;
pub const AUDIO: u8 = 8;
pub const VIDEO: u8 = 9;
pub const DATA_AMF3: u8 = 15;
pub const DATA: u8 = 18;
pub const COMMAND: u8 = 20;
pub const AGGREGATE: u8 = 22;

/// Status codes by which the server refuses a publisher.
const REFUSALS: &[&str] = &[
    "NetConnection.Connect.Rejected",
    "NetConnection.Connect.InvalidApp",
    "NetStream.Publish.BadName",
    "NetStream.Publish.Failed",
    "NetStream.Publish.Denied",
    "NetStream.Publish.Rejected",
];

/// An RTMP message and its time.
#[derive(Debug, Clone)]
pub struct Message {
    pub at: i64,
    pub chunk_stream: u32,
    pub kind: u8,
    pub stream: u32,
    pub timestamp: u32,
    pub body: Bytes,
}

impl Message {
    pub fn new(at: i64, kind: u8, timestamp: u32, body: impl Into<Bytes>) -> Self {
        let chunk_stream = match kind {
            SET_CHUNK_SIZE | USER_CONTROL => 2,
            AUDIO => 4,
            VIDEO => 6,
            _ => 5,
        };
        let stream = if chunk_stream == 2 { 0 } else { 1 };
        Self { at, chunk_stream, kind, stream, timestamp, body: body.into() }
    }

    /// Creates a command on the connection or on a stream.
    pub fn command(stream: u32, values: &[Value]) -> Self {
        Self { chunk_stream: 3, stream, ..Self::new(0, COMMAND, 0, amf(values)) }
    }
}

/// Encodes AMF0 values one after the other.
pub fn amf(values: &[Value]) -> Vec<u8> {
    let mut writer = wire::Writer::new();
    flv::amf0::write_all(values, &mut writer);
    writer.take().to_vec()
}

pub fn text(text: &str) -> Value {
    Value::string(text)
}

/// Form of the chunks that messages are cut into.
#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    pub size: usize,
    /// True if type 3 chunks repeat an extended timestamp.
    pub repeats_extended: bool,
    /// True if chunk headers are of types 1 to 3 where these suffice.
    pub short_heads: bool,
    /// True if the chunks of two successive messages alternate.
    pub interleaves: bool,
}

/// Everything that a publisher sends.
#[derive(Debug)]
pub struct Plan {
    /// Members of the command object of `connect`.
    pub connect: Vec<(String, Value)>,
    /// Commands between `connect` and the server's consent.
    pub commands: Vec<Message>,
    pub messages: Vec<Message>,
    /// Commands that end the stream.
    pub goodbye: Vec<Message>,
    pub chunks: Chunks,
    /// Changes the bytes after all chunks have been written.
    pub bytes: Option<fn(&mut Vec<Piece>)>,
}

impl Plan {
    /// Creates the messages of an ordinary encoder.
    pub fn new(stream: &str, units: &[Unit]) -> Self {
        let mut messages = vec![
            Message::new(0, DATA, 0, metadata()),
            Message::new(0, VIDEO, 0, video_header(&MediaSource::video_config())),
            Message::new(0, AUDIO, 0, audio_header()),
        ];
        messages.extend(units.iter().map(message));
        let app = |value: &str| vec![("app".to_owned(), text(value))];
        let mut new = Self {
            connect: app("live"),
            commands: Vec::new(),
            messages,
            goodbye: Vec::new(),
            chunks: Chunks { size: 4096, repeats_extended: true, short_heads: true, interleaves: false },
            bytes: None,
        };
        new.connect.push(("type".to_owned(), text("nonprivate")));
        new.connect.push(("flashVer".to_owned(), text("FMLE/3.0 (compatible; FMSc/1.0)")));
        new.connect.push(("tcUrl".to_owned(), text("rtmp://127.0.0.1:1935/live")));
        new.name(stream);
        new
    }

    /// Sets the name under which the stream is published.
    pub fn name(&mut self, name: &str) {
        let number = Value::Number;
        self.commands = vec![
            Message::command(0, &[text("releaseStream"), number(2.0), Value::Null, text(name)]),
            Message::command(0, &[text("FCPublish"), number(3.0), Value::Null, text(name)]),
            Message::command(0, &[text("createStream"), number(4.0), Value::Null]),
            Message::command(1, &[text("publish"), number(5.0), Value::Null, text(name), text("live")]),
        ];
        self.goodbye = vec![
            Message::command(0, &[text("FCUnpublish"), number(6.0), Value::Null, text(name)]),
            Message::command(0, &[text("deleteStream"), number(7.0), Value::Null, number(1.0)]),
        ];
    }

    /// Replaces a member of `connect`; `None` leaves it out.
    pub fn set(&mut self, member: &str, value: Option<Value>) {
        self.connect.retain(|(name, _)| name != member);
        self.connect.extend(value.map(|value| (member.to_owned(), value)));
    }

    /// Returns the media messages of a kind.
    pub fn of_kind(&mut self, kind: u8) -> impl Iterator<Item = &mut Message> {
        self.messages.iter_mut().filter(move |message| message.kind == kind)
    }

    /// Inserts messages among the media at their times.
    pub fn insert(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.messages.extend(messages);
        self.messages.sort_by_key(|message| message.at);
    }

    pub fn into_sender(self) -> ByteSender {
        let plain = Chunks { size: 128, short_heads: false, interleaves: false, ..self.chunks };
        let mut writer = Writer::new(plain);
        let connect = Value::Object(self.connect);
        let connect = Message::command(0, &[text("connect"), Value::Number(1.0), connect]);
        // The sender answers the server's part of the handshake by sending it back.
        let hello = [&[3][..], &[0; 8], &[7; 1528]].concat();
        let mut steps = VecDeque::from([
            (Bytes::from(hello), "S2"),
            (writer.write(&[connect]), "NetConnection.Connect.Success"),
        ]);
        let mut commands = Vec::new();
        if self.chunks.size != 128 {
            let size = u32::try_from(self.chunks.size).unwrap().to_be_bytes().to_vec();
            commands.push(Message::new(0, SET_CHUNK_SIZE, 0, size));
        }
        commands.extend(self.commands);
        steps.push_back((writer.write(&commands), "NetStream.Publish.Start"));
        writer.chunks = Chunks { size: writer.chunks.size, ..self.chunks };
        let mut pieces = Vec::new();
        if self.chunks.interleaves {
            for pair in self.messages.chunks(2) {
                pieces.push((pair[pair.len() - 1].at, writer.alternate(pair)));
            }
        } else {
            pieces.extend(self.messages.iter().map(|one| (one.at, writer.write(std::slice::from_ref(one)))));
        }
        if let Some(change) = self.bytes {
            change(&mut pieces);
        }
        let goodbye = writer.write(&self.goodbye);
        let opening = Opening { steps, refusals: REFUSALS, echoes: Some(1 + 1536 * 2), session: None };
        ByteSender::new(opening, pieces, goodbye)
    }
}

/// Writes chunks (§5.3.1). Keeps the state that short chunk headers need.
#[derive(Debug)]
struct Writer {
    chunks: Chunks,
    /// The last message on each chunk stream: its message stream, timestamp, length and type.
    last: std::collections::BTreeMap<u32, (u32, u32, usize, u8)>,
}

impl Writer {
    const fn new(chunks: Chunks) -> Self {
        Self { chunks, last: std::collections::BTreeMap::new() }
    }

    fn write(&mut self, messages: &[Message]) -> Bytes {
        messages.iter().flat_map(|message| self.pieces(message).concat()).collect::<Vec<u8>>().into()
    }

    fn alternate(&mut self, pair: &[Message]) -> Bytes {
        if let [one, other] = pair
            && one.chunk_stream == other.chunk_stream
        {
            return self.write(pair);
        }
        let lanes: Vec<Vec<Vec<u8>>> = pair.iter().map(|message| self.pieces(message)).collect();
        let most = lanes.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = Vec::new();
        for n in 0..most {
            lanes.iter().filter_map(|lane| lane.get(n)).for_each(|chunk| out.extend_from_slice(chunk));
        }
        out.into()
    }

    /// Returns the chunks of a message.
    fn pieces(&mut self, message: &Message) -> Vec<Vec<u8>> {
        let Message { chunk_stream, kind, stream, timestamp, body, .. } = message;
        let u24 = |value: u32| value.to_be_bytes()[1..].to_vec();
        let length = u24(u32::try_from(body.len()).unwrap());
        let before = self.last.insert(*chunk_stream, (*stream, *timestamp, body.len(), *kind));
        let delta = before.map(|(_, last, ..)| timestamp.wrapping_sub(last));
        let mut extended = None;
        let mut head = match before.zip(delta) {
            Some(((on, _, bytes, of), delta))
                if self.chunks.short_heads && on == *stream && delta < 0xff_ffff =>
            {
                if (bytes, of) == (body.len(), *kind) {
                    [basic(2, *chunk_stream), u24(delta)].concat()
                } else {
                    [basic(1, *chunk_stream), u24(delta), length, vec![*kind]].concat()
                }
            }
            _ => {
                extended = (*timestamp >= 0xff_ffff).then_some(*timestamp);
                let short = u24((*timestamp).min(0xff_ffff));
                [basic(0, *chunk_stream), short, length, vec![*kind], stream.to_le_bytes().to_vec()].concat()
            }
        };
        head.extend(extended.iter().flat_map(|timestamp| timestamp.to_be_bytes()));
        let mut pieces = Vec::new();
        for (n, part) in body.chunks(self.chunks.size).enumerate() {
            if n > 0 {
                head = basic(3, *chunk_stream);
                let repeats = extended.filter(|_| self.chunks.repeats_extended);
                head.extend(repeats.iter().flat_map(|timestamp| timestamp.to_be_bytes()));
            }
            pieces.push([&head[..], part].concat());
        }
        if body.is_empty() {
            pieces.push(head);
        }
        if *kind == SET_CHUNK_SIZE {
            self.chunks.size = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
        }
        pieces
    }
}

/// Returns the basic header of a chunk (§5.3.1.1).
fn basic(format: u8, chunk_stream: u32) -> Vec<u8> {
    let [.., high, low] = chunk_stream.wrapping_sub(64).to_be_bytes();
    match chunk_stream {
        0..64 => vec![format << 6 | chunk_stream as u8],
        64..320 => vec![format << 6, low],
        _ => vec![format << 6 | 1, low, high],
    }
}

/// Returns a unit as a message.
pub fn message(unit: &Unit) -> Message {
    let kind = if unit.is_video { VIDEO } else { AUDIO };
    Message::new(unit.at, kind, unit.raw as u32, body(unit))
}

pub fn body(unit: &Unit) -> Vec<u8> {
    if unit.is_video {
        let frame = if unit.key { FrameType::Key } else { FrameType::Inter };
        let cts = i32::try_from(unit.cts).unwrap();
        [&VideoTag::write_header(frame, VideoPacket::Frame, cts)[..], &unit.payload].concat()
    } else {
        [&AudioTag::write_header(AudioPacket::Frame)[..], &unit.payload].concat()
    }
}

pub fn video_header(record: &[u8]) -> Vec<u8> {
    [&VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0)[..], record].concat()
}

pub fn audio_header() -> Vec<u8> {
    [&AudioTag::write_header(AudioPacket::SequenceHeader)[..], &MediaSource::audio_config()].concat()
}

/// Returns the body of a metadata message: `@setDataFrame`, `onMetaData`, and an ECMA array of members.
pub fn metadata() -> Vec<u8> {
    let members = [
        ("width", 640.0),
        ("height", 360.0),
        ("framerate", 25.0),
        ("videocodecid", 7.0),
        ("audiocodecid", 10.0),
    ];
    let members = members.map(|(name, value)| (name.to_owned(), Value::Number(value)));
    amf(&[text("@setDataFrame"), text("onMetaData"), Value::EcmaArray(members.to_vec())])
}
