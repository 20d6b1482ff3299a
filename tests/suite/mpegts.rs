//! T: valid transport streams, with ffprobe and GStreamer as references. Our demuxer must find the same packets as they
//! do, both in files of ffmpeg and in files of our muxer.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use mpegts::{Demuxer, Event, Kind, Muxer, Packing, Pes, StreamKind, Unit};

use super::support::run;

/// PTS, DTS and size of a packet.
type Seen = (i64, i64, usize);

/// Returns a transport stream made by ffmpeg: six seconds of 640x360 at 30 frames per second, with audio.
fn ts_file(name: &str, coding: &[&str]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.ts", std::process::id()));
    let mut command = Command::new("ffmpeg");
    command
        .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi", "-i"])
        .arg("testsrc2=size=640x360:rate=30")
        .args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t", "6", "-pix_fmt", "yuv420p"])
        .args(coding)
        .args(["-f", "mpegts"])
        .arg(&path);
    let (status, _, err) = run(&mut command);
    assert!(status.success(), "{err}");
    path
}

/// Returns the packets that ffprobe finds in a stream of the file. ffprobe splits PES packets with several audio
/// frames, so there may be more packets than PES packets.
fn probe(path: &Path, stream: &str) -> Vec<Seen> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-select_streams", stream, "-show_entries", "packet=pts,dts,size"]);
    let (_, out, err) = run(command.args(["-of", "csv=p=0"]).arg(path));
    assert!(err.is_empty(), "{err}");
    let packet = |line: &str| {
        let fields: Vec<i64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        (fields[0], fields[1], usize::try_from(fields[2]).unwrap())
    };
    out.lines().filter(|line| !line.is_empty()).map(packet).collect()
}

/// Returns the PES packets of the file. The demuxer gets the bytes in pieces of the size of SRT payloads.
fn demux(path: &Path, streams: usize) -> Vec<Pes> {
    let bytes = std::fs::read(path).unwrap();
    let mut demuxer = Demuxer::new();
    let mut out = Vec::new();
    let mut take = |event| match event {
        Event::Pes(pes) => out.push(pes),
        Event::Program(map) => assert_eq!(map.streams.len(), streams),
        Event::Splice(_) => {}
    };
    for mut piece in bytes.chunks(1316) {
        while let Some(event) = demuxer.read(&mut piece) {
            take(event);
        }
    }
    demuxer.finish();
    while let Some(event) = demuxer.read(&mut &[][..]) {
        take(event);
    }
    let stats = demuxer.stats();
    assert_eq!((stats.gaps, stats.pes_cut, stats.pes_damaged, stats.sections_invalid), (0, 0, 0, 0));
    out
}

fn seen(packets: &[Pes], video: bool) -> Vec<Seen> {
    let time = |time: u64| i64::try_from(time).unwrap();
    let packet = |pes: &Pes| {
        let pts = pes.pts.unwrap();
        (time(pts), time(pes.dts.unwrap_or(pts)), pes.payload.len())
    };
    packets.iter().filter(|pes| pes.stream.kind.is_video() == video).map(packet).collect()
}

/// Returns the number of buffers that GStreamer's tsdemux outputs for one stream. With both streams in one run, their
/// output would be mixed within lines.
fn gstreamer_buffers(path: &Path, pad: &str) -> usize {
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-v", "filesrc"]).arg(format!("location={}", path.display()));
    command.args(["!", "tsdemux", "name=d"]).arg(format!("d.{pad}"));
    let (_, out, _) = run(command.args(["!", "identity", "silent=false", "!", "fakesink"]));
    out.lines().filter(|line| line.contains("chain   **")).count()
}

#[test]
fn transport_streams_in_and_out_are_what_ffprobe_and_gstreamer_see() {
    let codings: [(&str, &[&str]); 3] = [
        ("avc", &["-c:v", "libx264", "-preset", "veryfast", "-g", "30", "-bf", "2", "-c:a", "aac"]),
        ("opus", &["-c:v", "libx264", "-preset", "ultrafast", "-b:v", "8M", "-c:a", "libopus"]),
        ("mp3", &["-c:v", "libx264", "-preset", "ultrafast", "-muxdelay", "0", "-c:a", "libmp3lame"]),
    ];
    for (name, coding) in codings {
        let file = ts_file(name, coding);
        let packets = demux(&file, 2);
        assert_eq!(seen(&packets, true), probe(&file, "v"), "{name}");
        let times: Vec<i64> = probe(&file, "a").iter().map(|packet| packet.0).collect();
        assert!(seen(&packets, false).iter().all(|packet| times.contains(&packet.0)), "{name}");

        // Our muxer writes the same packets.
        let ours = file.with_extension("ours.ts");
        std::fs::write(&ours, mux(&packets)).unwrap();
        assert_eq!(probe(&ours, "v"), probe(&file, "v"), "{name}");
        assert_eq!(probe(&ours, "a"), probe(&file, "a"), "{name}");
        assert_eq!(gstreamer_buffers(&ours, "video_0_0100"), seen(&packets, true).len(), "{name}");
        let audio = |file| gstreamer_buffers(file, "audio_0_0101");
        assert_eq!(audio(&ours), audio(&file), "{name}");
        for file in [file, ours] {
            std::fs::remove_file(file).unwrap();
        }
    }
}

fn mux(packets: &[Pes]) -> Vec<u8> {
    let kind = |video: bool| -> Option<StreamKind> {
        let of = packets.iter().find(|pes| pes.stream.kind.is_video() == video);
        of.map(|pes| pes.stream.kind)
    };
    let mut muxer = Muxer::new();
    muxer.set_streams(kind(true), kind(false));
    let write = |pes: &Pes| -> Bytes {
        let pts = pes.pts.unwrap();
        let kind = if pes.stream.kind.is_video() { Kind::Video } else { Kind::Audio };
        let (dts, random_access) = (pes.dts.unwrap_or(pts), pes.random_access);
        muxer.write(&Unit { kind, number: 0, pts, dts, random_access, payload: &[&pes.payload] })
    };
    packets.iter().map(write).collect::<Vec<_>>().concat()
}

/// Ticks of an AAC frame at 48 kHz.
const FRAME: u64 = 1920;

/// Iterates over the frames of an audio PES packet, each with its ADTS header.
fn adts(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let head = rest.first_chunk::<7>()?;
        let bytes = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
        let (frame, tail) = rest.split_at(bytes);
        rest = tail;
        Some(frame)
    })
}

/// Writes the same streams frame by frame with this packing. With the packing for live viewers, tables are written
/// every 400 ms.
fn pack(packets: &[Pes], packing: Packing) -> Vec<u8> {
    let kind = |video: bool| packets.iter().map(|pes| pes.stream.kind).find(|kind| kind.is_video() == video);
    let mut units: Vec<(Kind, u64, u64, bool, &[u8])> = Vec::new();
    for pes in packets {
        let pts = pes.pts.unwrap();
        if pes.stream.kind.is_video() {
            units.push((Kind::Video, pts, pes.dts.unwrap_or(pts), pes.random_access, &pes.payload));
        } else {
            let frames = adts(&pes.payload).zip((0..).map(|n| pts + n * FRAME));
            units.extend(frames.map(|(frame, pts)| (Kind::Audio, pts, pts, false, frame)));
        }
    }
    units.sort_by_key(|(_, _, dts, ..)| *dts);
    let mut muxer = Muxer::with_packing(packing);
    muxer.set_streams(kind(true), kind(false));
    let (mut out, mut tables_at) = (Vec::new(), 0);
    for (kind, pts, dts, random_access, payload) in units {
        if packing == Packing::LIVE && dts >= tables_at + 36_000 {
            muxer.begin();
            tables_at = dts;
        }
        let unit = Unit { kind, number: 0, pts, dts, random_access, payload: &[payload] };
        out.extend(if kind == Kind::Video { muxer.write(&unit) } else { muxer.pack(&unit, FRAME) });
    }
    out.extend(muxer.flush());
    out
}

#[test]
fn transport_streams_of_ours_are_as_small_as_those_of_ffmpeg_and_read_the_same() {
    let sound = "anoisesrc=r=48000:a=0.3:c=pink";
    let video = ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25"];
    let coded = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-pix_fmt", "yuv420p", "-b:v"];
    for (rate, video_rate) in [("64k", None), ("128k", None), ("128k", Some("2M")), ("64k", Some("150k"))] {
        let name = format!("size-{rate}-{}-{}.ts", video_rate.unwrap_or("0"), std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi", "-i", sound]);
        if let Some(video_rate) = video_rate {
            command.args(video).args(coded).arg(video_rate);
        }
        command.args(["-ac", "2", "-c:a", "aac", "-b:a", rate, "-t", "20", "-f", "mpegts"]).arg(&path);
        let (status, _, err) = run(&mut command);
        assert!(status.success(), "{err}");
        let theirs = std::fs::metadata(&path).unwrap().len();
        let packets = demux(&path, if video_rate.is_some() { 2 } else { 1 });
        for (packing, percent) in [(Packing::SEGMENT, 100), (Packing::LIVE, 106)] {
            let bytes = pack(&packets, packing);
            let ours = bytes.len() as u64;
            println!("{rate} {video_rate:?} {packing:?}: {ours} of {theirs}");
            assert!(ours * 100 <= theirs * percent, "{rate} {video_rate:?} {packing:?}: {ours} of {theirs}");
            let written = path.with_extension("ours.ts");
            std::fs::write(&written, bytes).unwrap();
            assert_eq!(probe(&written, "a"), probe(&path, "a"), "{rate} {packing:?}");
            assert_eq!(probe(&written, "v"), probe(&path, "v"), "{rate} {packing:?}");
            std::fs::remove_file(written).unwrap();
        }
        std::fs::remove_file(path).unwrap();
    }
}
