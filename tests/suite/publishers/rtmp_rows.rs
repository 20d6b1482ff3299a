//! Rows of RTMP: what encoders send before, between and around their media.

use flv::amf0::Value;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use netsim::MediaSource;

use super::judge::{Kind, Outcome};
use super::rtmp::{
    AGGREGATE, AUDIO, DATA, DATA_AMF3, Message, Plan, SET_CHUNK_SIZE, USER_CONTROL, VIDEO, amf, metadata,
    text, video_header,
};
use super::units::{adts, sets, sps};
use super::{ALL, EXACT, Gets, Oddity, Row, refused};
use crate::support::world::Over;

const fn row(name: &'static str, change: fn(&mut Plan), gets: Gets) -> Row {
    Row { name, over: &[Over::Rtmp], oddity: Oddity::Rtmp(change), gets }
}

/// Viewers get all pictures, and need not get audio.
const SILENT: Gets = ALL.without(0, usize::MAX).checked(no_sound);

/// All rows of RTMP.
pub const ROWS: &[Row] = &[
    row("a parameter has no value", |p| p.name("odd?token="), EXACT),
    row("a parameter is a mere name", |p| p.name("odd?flag"), EXACT),
    row("a parameter has no name", |p| p.name("odd?&a=b"), EXACT),
    row("the stream begins with a slash", |p| p.name("/odd"), EXACT),
    row("a token stands behind the stream", |p| p.name("odd/token"), EXACT),
    row("parameters stand behind the application", |p| p.set("app", Some(text("live?key=1"))), EXACT),
    row("the application ends with a slash", |p| p.set("app", Some(text("live/"))), EXACT),
    row("the stream's name has a space", |p| p.name("odd one"), refused("stream name is invalid")),
    row("the application is unknown", |p| p.set("app", Some(text("nowhere"))), refused("Connect")),
    row("connect has no tcUrl", |p| p.set("tcUrl", None), EXACT),
    row("connect has no flashVer", |p| p.set("flashVer", None), EXACT),
    row("connect has members of odd types", odd_members, EXACT),
    row("there is no releaseStream and no FCPublish", |p| drop(p.commands.drain(..2)), EXACT),
    row("FCPublish comes twice", |p| p.commands.insert(1, p.commands[1].clone()), EXACT),
    row("publish has no type", |p| publish(p, &[]), EXACT),
    row("publish is of the type record", |p| publish(p, &[text("record")]), EXACT),
    row("publish has values behind its type", |p| publish(p, &[text("live"), Value::Null, text("x")]), EXACT),
    row("commands are of AMF3", commands_of_amf3, EXACT),
    row("parameter sets come before the consent", early_sets, EXACT),
    row("there is no metadata", |p| drop(p.messages.remove(0)), EXACT),
    row("metadata has odd types", odd_metadata, EXACT),
    row("metadata is of AMF3", metadata_of_amf3, EXACT),
    row("metadata has 60 KB", large_metadata, EXACT),
    row("metadata comes every second", |p| p.insert(every(1_000, DATA, metadata)), EXACT),
    row(
        "metadata says a time of zero in mid-stream",
        |p| p.insert([Message::new(9_000, DATA, 0, metadata())]),
        EXACT,
    ),
    row("metadata is no AMF", |p| p.messages[0].body = vec![9; 40].into(), EXACT),
    row("data messages have unknown names", |p| p.insert(every(500, DATA, cue_point)), EXACT),
    row("sound is of format 15", |p| sound_byte(p, 0xff), SILENT),
    row("sound is Speex", |p| sound_byte(p, 0xb6), SILENT),
    row("sound is of a reserved format", |p| sound_byte(p, 0xc6), SILENT),
    row(
        "sound is ADTS without a sequence header",
        |p| {
            p.messages.remove(2);
            with_adts(p)
        },
        EXACT,
    ),
    row("sound is ADTS with a sequence header", with_adts, EXACT),
    row("sound messages are empty now and then", |p| p.insert(every(300, AUDIO, || vec![0xaf, 1])), EXACT),
    row("sound messages have no byte now and then", |p| p.insert(every(3_000, AUDIO, Vec::new)), EXACT),
    row(
        "the sequence header of the sound is empty at first",
        |p| p.messages.insert(1, Message::new(0, AUDIO, 0, vec![0xaf, 0])),
        EXACT,
    ),
    row(
        "the sequence header of the video is empty at first",
        |p| p.messages.insert(1, Message::new(0, VIDEO, 0, vec![0x17, 0, 0, 0, 0])),
        EXACT,
    ),
    row(
        "there is no sequence header of the video, sets come in band",
        |p| {
            p.messages.remove(1);
            sets_in_band(p)
        },
        EXACT,
    ),
    row(
        "there is no sequence header at all",
        |p| p.messages.retain(|m| m.body.get(1) != Some(&0) || !matches!(m.kind, AUDIO | VIDEO)),
        refused("no frame could be used within 15 s"),
    ),
    row("sets come in band beside the sequence header", sets_in_band, EXACT),
    row("sets in band change the size of pictures", larger_sets, EXACT.checked(larger)),
    row(
        "the sequence header comes with every key frame",
        |p| p.insert(every(2_000, VIDEO, || video_header(&MediaSource::video_config()))),
        EXACT,
    ),
    row("the sequence header changes in mid-stream", changed_header, EXACT.checked(two_configs)),
    row(
        "the sequence header of the sound comes late",
        |p| {
            let late = p.messages.remove(2);
            p.insert([Message { at: 200, ..late }])
        },
        EXACT.without(0, 10),
    ),
    row(
        "the sequence ends and goes on",
        |p| p.insert([Message::new(9_000, VIDEO, 9_000, vec![0x17, 2, 0, 0, 0])]),
        EXACT,
    ),
    row(
        "pictures are empty now and then",
        |p| p.insert(every(3_000, VIDEO, || vec![0x27, 1, 0, 0, 0])),
        EXACT,
    ),
    row("video messages have no byte now and then", |p| p.insert(every(3_000, VIDEO, Vec::new)), EXACT),
    row(
        "commands of the video come between pictures",
        |p| p.insert(every(1_000, VIDEO, || vec![0x57, 0])),
        EXACT,
    ),
    row("NAL units stand behind start codes", start_codes, EXACT),
    row("NAL units have lengths of two bytes", short_lengths, EXACT),
    row("composition times are negative", |p| composition(p, -40), ALL.exactly(45)),
    row("video is H.264 with a FourCC", enhanced_video, EXACT),
    row("sound is AAC with a FourCC", enhanced_sound, EXACT),
    row(
        "video is of an unknown codec",
        |p| p.of_kind(VIDEO).for_each(|m| with_head(m, 5, &[0x94, b'x', b'x', b'x', b'x'])),
        refused("NetStream.Failed"),
    ),
    row("chunks have one byte", |p| p.chunks.size = 1, EXACT),
    row("chunks have 128 bytes", |p| p.chunks.size = 128, EXACT),
    row("chunks have 64 KiB", |p| p.chunks.size = 65_536, EXACT),
    row("chunks of two messages alternate", |p| (p.chunks.interleaves, p.chunks.size) = (true, 128), EXACT),
    row("the chunk size changes in mid-stream", chunk_sizes, EXACT),
    row("every chunk has a full head", |p| p.chunks.short_heads = false, EXACT),
    row("extended timestamps are repeated", |p| extended(p, true), EXACT),
    row("extended timestamps are not repeated", |p| extended(p, false), EXACT),
    row(
        "sound and video share a chunk stream",
        |p| p.messages.iter_mut().for_each(|m| m.chunk_stream = 4),
        EXACT,
    ),
    row("chunk streams have numbers of two bytes", |p| media(p, |m| m.chunk_stream += 100), EXACT),
    row("chunk streams have numbers of three bytes", |p| media(p, |m| m.chunk_stream += 1_000), EXACT),
    row("messages are aggregates", aggregates, EXACT),
    row(
        "pings come between the media",
        |p| p.insert(every(500, USER_CONTROL, || vec![0, 6, 0, 0, 0, 1])),
        EXACT,
    ),
    row(
        "user control messages are of unknown types",
        |p| p.insert(every(5_000, USER_CONTROL, || vec![0, 99, 1, 2, 3, 4])),
        EXACT,
    ),
    row("acknowledgements and windows come between the media", windows, EXACT),
    row(
        "messages of unknown types come between the media",
        |p| p.insert(every(2_000, 7, || vec![1, 2, 3])),
        EXACT,
    ),
    row(
        "shared objects come between the media",
        |p| p.insert(every(4_000, 19, || vec![0, 1, b'x', 0, 0])),
        EXACT,
    ),
    row(
        "commands come between the media",
        |p| p.insert(every(1_000, 20, || amf(&[text("onFI"), Value::Number(0.0), Value::Null]))),
        EXACT,
    ),
    row("an unfinished message is aborted", aborted, EXACT),
    row("deleteStream comes without FCUnpublish", |p| drop(p.goodbye.remove(0)), EXACT),
    row("the goodbye is FCUnpublish alone", |p| p.goodbye.truncate(1), EXACT),
    row(
        "the goodbye is closeStream",
        |p| p.goodbye = vec![Message::command(1, &[text("closeStream"), Value::Number(0.0), Value::Null])],
        EXACT,
    ),
];

fn no_sound(outcome: &Outcome) -> Result<(), String> {
    let heard = outcome.views.iter().any(|view| view.of_kind(false).next().is_some());
    if heard { Err("there is sound".to_owned()) } else { Ok(()) }
}

/// Checks that the broadcast record shows the size that the parameter sets in the stream state.
fn larger(outcome: &Outcome) -> Result<(), String> {
    let has = outcome.broadcast.contains("1280") && outcome.broadcast.contains("720");
    if has { Ok(()) } else { Err(outcome.broadcast.clone()) }
}

/// Checks that the RTMP viewer was sent both sequence headers.
fn two_configs(outcome: &Outcome) -> Result<(), String> {
    let view = outcome.views.iter().find(|view| view.kind == Kind::Live(Over::Rtmp)).unwrap();
    let configs = view.log.configs.iter().filter(|(is_video, _)| *is_video).count();
    if configs == 2 { Ok(()) } else { Err(format!("{configs} sequence headers")) }
}

/// Returns a message for every `ms` milliseconds.
fn every(ms: i64, kind: u8, body: fn() -> Vec<u8>) -> Vec<Message> {
    let message = |n: i64| Message::new(n * ms, kind, u32::try_from(n * ms).unwrap(), body());
    (1..20_000 / ms).map(message).collect()
}

fn media(plan: &mut Plan, change: fn(&mut Message)) {
    plan.messages.iter_mut().filter(|message| matches!(message.kind, AUDIO | VIDEO)).for_each(change);
}

/// Changes the media messages of a kind that are not sequence headers.
fn frames(plan: &mut Plan, kind: u8, change: fn(&mut Message)) {
    plan.of_kind(kind).filter(|message| message.body.get(1) == Some(&1)).for_each(change);
}

/// Replaces the first `bytes` bytes of a message by `head`.
fn with_head(message: &mut Message, bytes: usize, head: &[u8]) {
    message.body = [head, &message.body[bytes.min(message.body.len())..]].concat().into();
}

fn odd_members(plan: &mut Plan) {
    plan.set("audioCodecs", Some(text("many")));
    plan.set("videoFunction", Some(Value::Undefined));
    plan.set("pageUrl", Some(Value::Number(f64::NAN)));
    plan.set("fpad", Some(Value::StrictArray(vec![Value::Null, Value::Boolean(true)])));
    plan.set("flashVer", Some(Value::Number(3.0)));
}

/// Appends these values to the `publish` command, after the name.
fn publish(plan: &mut Plan, values: &[Value]) {
    let mut all = vec![text("publish"), Value::Number(5.0), Value::Null, text("odd")];
    all.extend_from_slice(values);
    *plan.commands.last_mut().unwrap() = Message::command(1, &all);
}

fn commands_of_amf3(plan: &mut Plan) {
    for message in plan.commands.iter_mut().chain(&mut plan.goodbye) {
        (message.kind, message.body) = (17, [&[0][..], &message.body].concat().into());
    }
}

fn early_sets(plan: &mut Plan) {
    let early: Vec<Message> = plan.messages.drain(..3).collect();
    plan.commands.extend(early);
}

fn odd_metadata(plan: &mut Plan) {
    let members = [
        ("width", text("640")),
        ("height", Value::Number(f64::NAN)),
        ("framerate", Value::Null),
        ("videocodecid", text("avc1")),
        ("audiocodecid", Value::Undefined),
        ("creationdate", Value::Date { unix_ms: 1.0, zone: 0 }),
        ("keyframes", Value::Object(vec![("times".to_owned(), Value::StrictArray(Vec::new()))])),
        ("", Value::Boolean(true)),
    ];
    let members = members.map(|(name, value)| (name.to_owned(), value)).to_vec();
    plan.messages[0].body = amf(&[text("@setDataFrame"), text("onMetaData"), Value::Object(members)]).into();
}

fn metadata_of_amf3(plan: &mut Plan) {
    plan.messages[0].kind = DATA_AMF3;
    plan.messages[0].body = [&[0][..], &metadata()].concat().into();
}

fn large_metadata(plan: &mut Plan) {
    let comment = ("comment".to_owned(), text(&"x".repeat(60_000)));
    plan.messages[0].body =
        amf(&[text("@setDataFrame"), text("onMetaData"), Value::EcmaArray(vec![comment])]).into();
}

fn cue_point() -> Vec<u8> {
    amf(&[text("onCuePoint"), Value::object([("name", text("ad")), ("time", Value::Number(1.0))])])
}

/// Sets the first byte of all audio messages.
fn sound_byte(plan: &mut Plan, byte: u8) {
    for message in plan.of_kind(AUDIO) {
        with_head(message, 1, &[byte]);
    }
}

fn with_adts(plan: &mut Plan) {
    frames(plan, AUDIO, |message| {
        let frame = message.body.slice(2..);
        message.body = [&[0xaf, 1][..], &adts(frame.len()), &frame].concat().into();
    });
}

/// Joins NAL units, each with its length in four bytes before it.
fn with_lengths(units: &[&[u8]]) -> Vec<u8> {
    let unit = |unit: &&[u8]| [&u32::try_from(unit.len()).unwrap().to_be_bytes()[..], unit].concat();
    units.iter().flat_map(unit).collect()
}

fn sets_in_band(plan: &mut Plan) {
    frames(plan, VIDEO, |message| {
        if message.body[0] == 0x17 {
            let [sps, pps] = sets();
            message.body =
                [&message.body[..5], &with_lengths(&[&sps, &pps]), &message.body[5..]].concat().into();
        }
    });
}

fn larger_sets(plan: &mut Plan) {
    frames(plan, VIDEO, |message| {
        if message.body[0] == 0x17 && message.at > 9_000 {
            let (sps, [_, pps]) = (sps(80, 45), sets());
            message.body =
                [&message.body[..5], &with_lengths(&[&sps, &pps]), &message.body[5..]].concat().into();
        }
    });
}

fn changed_header(plan: &mut Plan) {
    let (sps, [_, pps]) = (sps(80, 45), sets());
    let mut record = vec![1, sps[1], sps[2], sps[3], 0xff, 0xe1, 0, sps.len() as u8];
    record.extend_from_slice(&sps);
    record.extend_from_slice(&[1, 0, pps.len() as u8]);
    record.extend_from_slice(&pps);
    let key = plan.messages.iter().find(|one| one.kind == VIDEO && one.at > 9_000 && one.body[0] == 0x17);
    let (at, timestamp) = key.map(|key| (key.at, key.timestamp)).unwrap();
    let place = plan.messages.iter().position(|one| one.kind == VIDEO && one.at == at).unwrap();
    plan.messages.insert(place, Message::new(at, VIDEO, timestamp, video_header(&record)));
}

fn start_codes(plan: &mut Plan) {
    frames(plan, VIDEO, |message| {
        let unit = message.body.slice(9..);
        message.body = [&message.body[..5], &[0, 0, 0, 1], &unit].concat().into();
    });
}

fn short_lengths(plan: &mut Plan) {
    let mut record = MediaSource::video_config().to_vec();
    record[4] = 0xfd;
    plan.messages[1].body = video_header(&record).into();
    frames(plan, VIDEO, |message| {
        let unit = message.body.slice(9..);
        let length = u16::try_from(unit.len()).unwrap().to_be_bytes();
        message.body = [&message.body[..5], &length, &unit].concat().into();
    });
}

/// Sets the composition time of all pictures except key frames.
fn composition(plan: &mut Plan, ms: i32) {
    for message in plan.of_kind(VIDEO).filter(|message| message.body[0] == 0x27) {
        let time = ms.to_be_bytes();
        with_head(message, 5, &[0x27, 1, time[1], time[2], time[3]]);
    }
}

fn enhanced_video(plan: &mut Plan) {
    for message in plan.of_kind(VIDEO) {
        let frame = if message.body[0] == 0x17 { FrameType::Key } else { FrameType::Inter };
        let packet = if message.body[1] == 0 { VideoPacket::SequenceHeader } else { VideoPacket::Frame };
        let head = VideoTag::write_enhanced(frame, packet, *b"avc1", 0);
        with_head(message, 5, &head);
    }
}

fn enhanced_sound(plan: &mut Plan) {
    for message in plan.of_kind(AUDIO) {
        let packet = if message.body[1] == 0 { AudioPacket::SequenceHeader } else { AudioPacket::Frame };
        with_head(message, 2, &AudioTag::write_enhanced(packet, *b"mp4a"));
    }
}

fn chunk_sizes(plan: &mut Plan) {
    let size = |at: i64, size: u32| Message::new(at, SET_CHUNK_SIZE, 0, size.to_be_bytes().to_vec());
    plan.insert([size(5_000, 100), size(8_000, 65_536), size(11_000, 1), size(14_000, 4_096)]);
}

/// Uses timestamps that do not fit into three bytes, in chunks with full headers.
fn extended(plan: &mut Plan, repeats: bool) {
    plan.messages.iter_mut().for_each(|message| message.timestamp += 0x0123_4567);
    plan.chunks.short_heads = false;
    plan.chunks.repeats_extended = repeats;
    plan.chunks.size = 128;
}

/// Packs every four media messages into one aggregate message (§7.1.6).
fn aggregates(plan: &mut Plan) {
    let rest = plan.messages.split_off(3);
    for some in rest.chunks(4) {
        let mut body = Vec::new();
        for message in some {
            let [a, b, c, d] = message.timestamp.to_be_bytes();
            let length = u32::try_from(message.body.len()).unwrap();
            body.push(message.kind);
            body.extend_from_slice(&length.to_be_bytes()[1..]);
            body.extend_from_slice(&[b, c, d, a, 0, 0, 1]);
            body.extend_from_slice(&message.body);
            body.extend_from_slice(&(length + 11).to_be_bytes());
        }
        plan.messages.push(Message::new(some[some.len() - 1].at, AGGREGATE, some[0].timestamp, body));
    }
}

/// Inserts Acknowledgement, Window Acknowledgement Size and Set Peer Bandwidth messages (§5.4).
fn windows(plan: &mut Plan) {
    plan.insert(every(1_000, 3, || vec![0, 1, 0, 0]).into_iter().map(on_control));
    plan.insert(every(2_000, 5, || vec![0, 0x26, 0x25, 0xa0]).into_iter().map(on_control));
    plan.insert(every(3_000, 6, || vec![0, 0x26, 0x25, 0xa0, 2]).into_iter().map(on_control));
}

fn on_control(message: Message) -> Message {
    Message { chunk_stream: 2, stream: 0, ..message }
}

/// Inserts half a message on a separate chunk stream, then Abort (§5.4.2).
fn aborted(plan: &mut Plan) {
    plan.bytes = Some(|pieces| {
        let half = [&[9, 0, 0, 0, 0, 0x27, 0x10, 9, 1, 0, 0, 0][..], &[0x27; 4096]].concat();
        let abort = [2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 9];
        let place = pieces.iter().position(|(at, _)| *at > 6_000).unwrap();
        pieces.insert(place, (6_000, [&half[..], &abort].concat().into()));
    });
}
