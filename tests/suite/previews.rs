//! Previews: pictures of live streams, and the process that makes them.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use media::codec::{h264, vp8};
use media::nal::{AnnexB, to_lengths};
use media::{Codec, CodecConfig};
use picture::{ANSWER_BYTES_MAX, Answer, Bytes, Error, Format, HEAD_BYTES, Request, Shape, length_of};

use super::support::{Home, Program, Server, raw_exchange, run, secs, wait_for};

const BARS: &str = "smptebars=size=640x360:rate=30";

/// Colours of the upper bars of the test picture, from left to right.
const COLOURS: [[u8; 3]; 7] =
    [[191, 191, 191], [191, 191, 0], [0, 191, 191], [0, 191, 0], [191, 0, 191], [191, 0, 0], [0, 0, 191]];

fn publish(server: &Server, id: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args([
        "-nostdin",
        "-v",
        "error",
        "-re",
        "-f",
        "lavfi",
        "-i",
        BARS,
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
    ]);
    command
        .args(["-g", "30", "-bf", "0", "-pix_fmt", "yuv420p", "-f", "flv"])
        .arg(server.rtmp_url(&format!("live/{id}")));
    Program::start(&mut command)
}

/// An answer with a binary body.
struct Fetched {
    status: u16,
    head: String,
    bytes: Vec<u8>,
}

impl Fetched {
    fn of(server: &Server, path: &str, field: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n");
        let answer = raw_exchange(server.http, request.as_bytes());
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, bytes: answer[end + 4..].to_vec() }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Decodes a picture with ffmpeg. Returns its rows of RGB.
fn pixels(home: &Path, file: &[u8]) -> Vec<u8> {
    let (coded, plain) = (home.join("picture"), home.join("picture.rgb"));
    fs::write(&coded, file).unwrap();
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y", "-i"]).arg(&coded);
    let (status, _, said) = run(command.args(["-pix_fmt", "rgb24", "-f", "rawvideo"]).arg(&plain));
    assert!(status.success(), "{said}");
    fs::read(plain).unwrap()
}

fn assert_bars(home: &Path, file: &[u8], (width, height): (usize, usize)) {
    let rgb = pixels(home, file);
    assert_eq!(rgb.len(), width * height * 3);
    for (bar, wanted) in COLOURS.iter().enumerate() {
        let at = (height / 3 * width + width * (2 * bar + 1) / 14) * 3;
        let got = &rgb[at..at + 3];
        assert!(got.iter().zip(wanted).all(|(got, wanted)| got.abs_diff(*wanted) < 14), "bar {bar}: {got:?}");
    }
}

/// Returns the ids of the processes that make pictures for a server.
fn helpers(server: &Server) -> Vec<u32> {
    let own = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1) == Some(server.pid().to_string().as_str())
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(own).collect()
}

#[test]
fn pictures_of_a_live_stream_show_it_and_are_made_once_a_period() {
    let home = Home::new();
    let server =
        Server::start(&["server.workers=2", "app.createPreviewPeriod=60000", "app.previewQuality=90"]);
    let _publisher = publish(&server, "s");
    let api = server.api();
    wait_for("the picture", secs(30), || api.get("/live/previews/s.jpg").status == 200);
    let jpeg = Fetched::of(&server, "/live/previews/s.jpg", "");
    assert_eq!(jpeg.field("content-type"), Some("image/jpeg"));
    assert_bars(home.path(), &jpeg.bytes, (320, 180));
    let png = Fetched::of(&server, "/live/previews/s.png", "");
    assert_eq!((png.status, png.field("content-type")), (200, Some("image/png")));
    assert_bars(home.path(), &png.bytes, (320, 180));
    // Within the period of previews, the picture stays the same, so a client that already has it gets 304.
    let tag = format!("If-None-Match: {}\r\n", png.field("etag").unwrap());
    assert_eq!(Fetched::of(&server, "/live/previews/s.png", &tag).status, 304);
    assert!(png.field("cache-control").unwrap().starts_with("max-age="), "{}", png.head);
    // A request for a picture does not count as a viewer. Streams that are not live have no pictures.
    assert_eq!(api.broadcast("live", "s").unwrap()["hlsViewerCount"], 0);
    assert_eq!(api.get("/live/previews/other.png").status, 404);
    wait_for("both pictures in the figures", secs(30), || {
        api.metric("millstream_jobs_done_total", "class=\"picture\"") >= 2.0
    });
    // The API has the same picture.
    let snapshot = Fetched::of(&server, "/live/rest/v2/broadcasts/s/snapshot", "");
    assert_eq!((snapshot.status, &snapshot.bytes), (200, &jpeg.bytes));
    assert_eq!(api.get("/live/rest/v2/broadcasts/other/snapshot").status, 404);
    assert_eq!(api.get("/nothing/rest/v2/broadcasts/s/snapshot").status, 404);
    // Pictures are not served under other paths.
    assert_eq!(api.get("/live/streams/previews/s.png").status, 404);
}

#[test]
fn pictures_are_made_by_the_settings() {
    let home = Home::new();
    let by_period = [
        "app.generatePreview=true",
        "app.preview.onRequest=false",
        "app.preview.width=0",
        "app.previewHeight=90",
    ];
    let server = Server::start(&[&by_period[..], &["app.previewFormat=jpg"]].concat());
    let _publisher = publish(&server, "s");
    let api = server.api();
    wait_for("a picture that nobody asked for", secs(30), || {
        api.metric("millstream_jobs_done_total", "class=\"picture\"") >= 1.0
    });
    let reply = Fetched::of(&server, "/live/previews/s.jpg", "");
    assert_eq!(reply.status, 200);
    assert_bars(home.path(), &reply.bytes, (160, 90));
    assert_eq!(api.get("/live/previews/s.png").status, 404);
}

#[test]
fn a_picture_needs_what_playing_needs() {
    let server = Server::start(&["app.playTokenControlEnabled=true"]);
    let _publisher = publish(&server, "s");
    let api = server.api();
    wait_for("the stream", secs(30), || {
        api.broadcast("live", "s").is_some_and(|record| record["status"] == "broadcasting")
    });
    assert_eq!(api.get("/live/previews/s.png").status, 403);
    let token = api.get("/live/rest/v2/broadcasts/s/token?expireDate=99999999999&type=play").json();
    let path = format!("/live/previews/s.png?token={}", token["tokenId"].as_str().unwrap());
    let reply = Fetched::of(&server, &path, "");
    assert_eq!(reply.status, 200);
    assert!(reply.field("cache-control").unwrap().starts_with("private, "), "{}", reply.head);
}

#[test]
fn a_process_that_is_killed_is_replaced_and_has_no_rights() {
    let server = Server::start(&["app.createPreviewPeriod=1000"]);
    assert_eq!(helpers(&server), Vec::<u32>::new(), "started when it is first needed");
    let _publisher = publish(&server, "s");
    let api = server.api();
    wait_for("the picture", secs(30), || api.get("/live/previews/s.png").status == 200);
    let first = helpers(&server);
    assert_eq!(first.len(), 1);
    let status = fs::read_to_string(format!("/proc/{}/status", first[0])).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
    // The process has four open files: its socket, a copy of it, and /dev/null twice.
    assert_eq!(fs::read_dir(format!("/proc/{}/fd", first[0])).unwrap().count(), 4);
    assert_eq!(fs::read(format!("/proc/{}/environ", first[0])).unwrap(), b"");
    let limits = fs::read_to_string(format!("/proc/{}/limits", first[0])).unwrap();
    for name in ["Max open files", "Max processes", "Max file size", "Max core file size"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line[name.len()..].split_whitespace().next(), Some("0"), "{line}");
    }
    assert!(run(Command::new("kill").args(["-9", &first[0].to_string()])).0.success());
    wait_for("another process", secs(30), || {
        let reply = api.get("/live/previews/s.png");
        reply.status == 200 && helpers(&server).iter().any(|id| !first.contains(id))
    });
}

/// The process that makes pictures, without a server. The test sends requests to its socket.
struct Worker {
    child: Child,
    socket: UnixStream,
}

impl Worker {
    fn start() -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.arg("preview-worker").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        Self { child: command.stderr(Stdio::null()).spawn().unwrap(), socket }
    }

    /// Sends a request and returns the answer; `None` if the process has died.
    fn ask(&mut self, request: &Request) -> Option<Result<Bytes, Error>> {
        self.socket.write_all(&request.write().unwrap()).ok()?;
        let mut head = [0; HEAD_BYTES];
        self.socket.read_exact(&mut head).ok()?;
        let mut answer = vec![0; length_of(head, ANSWER_BYTES_MAX).unwrap()];
        self.socket.read_exact(&mut answer).ok()?;
        Some(Answer::read(answer.into()).unwrap().0)
    }

    fn peak_kb(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SHAPE: Shape = Shape { format: Format::Png, width: 320, height: 480, quality: 75 };

/// Returns a picture of bars, encoded by ffmpeg with these options.
fn bars_by(file: &Path, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", BARS, "-frames:v", "1"]);
    let (status, _, said) = run(command.args(options).arg(file));
    assert!(status.success(), "{said}");
    fs::read(file).unwrap()
}

/// Returns a request with a key frame that x264 has encoded with these options.
fn key_frame(home: &Path, options: &[&str]) -> Request {
    let annex_b =
        bars_by(&home.join("frame.h264"), &[&["-c:v", "libx264"], options, &["-f", "h264"]].concat());
    let nals: Vec<&[u8]> = AnnexB::new(&annex_b).collect();
    let of_type = |kind| nals.iter().copied().filter(|nal| h264::nal_type(nal) == kind).collect::<Vec<_>>();
    let config = h264::Config::of_sets(&of_type(h264::NAL_SPS), &of_type(h264::NAL_PPS)).unwrap();
    Request { config: CodecConfig::H264(config), payload: to_lengths(&annex_b), shape: SHAPE }
}

#[test]
fn what_no_decoder_takes_is_refused_by_its_headers() {
    let home = Home::new();
    for options in [
        &["-pix_fmt", "yuv420p10le"][..],
        &["-pix_fmt", "yuv444p"],
        &["-pix_fmt", "yuv420p", "-flags", "+ildct+ilme", "-x264-params", "interlaced=1"],
    ] {
        let request = key_frame(home.path(), options);
        assert_eq!(picture::look(&request.config, &request.payload), Err(Error::Profile), "{options:?}");
    }
    let request = key_frame(home.path(), &["-pix_fmt", "yuv420p"]);
    assert_eq!(picture::look(&request.config, &request.payload), Ok(()));
    let opus = CodecConfig::read(Codec::Opus, Bytes::new()).unwrap().unwrap();
    assert_eq!(picture::look(&opus, &[]), Err(Error::Codec));
}

#[test]
fn a_key_frame_of_vp8_is_a_picture() {
    let home = Home::new();
    let coded = ["-c:v", "libvpx", "-b:v", "4M", "-pix_fmt", "yuv420p", "-f", "ivf"];
    let ivf = bars_by(&home.path().join("frame.ivf"), &coded);
    // In an IVF file, a header of 32 bytes and a frame header of 12 bytes precede the frame.
    let payload = Bytes::from(ivf).slice(44..);
    let request = Request { config: CodecConfig::Vp8(vp8::Config::default()), payload, shape: SHAPE };
    let made = Worker::start().ask(&request).unwrap().unwrap();
    assert_bars(home.path(), &made, (320, 180));
}

#[test]
fn hostile_key_frames_leave_the_process_bounded() {
    let home = Home::new();
    let good = key_frame(home.path(), &["-pix_fmt", "yuv420p", "-preset", "ultrafast"]);
    let mut worker = Worker::start();
    assert_bars(home.path(), &worker.ask(&good).unwrap().unwrap(), (320, 180));
    let base_kb = worker.peak_kb("VmPeak:");
    // The key frame contains a parameter set of 16384x16384, which replaces the parameter set whose size was checked.
    let giant = giant_set();
    assert_eq!(h264::picture_size(&giant), Ok((16_384, 16_384)));
    let mut payload = Vec::from(u32::try_from(giant.len()).unwrap().to_be_bytes());
    payload.extend_from_slice(&giant);
    payload.extend_from_slice(&good.payload);
    let hostile = Request { payload: payload.into(), ..good.clone() };
    let answer = worker.ask(&hostile);
    assert!(!matches!(answer, Some(Ok(_))), "{answer:?}");
    if answer.is_none() {
        worker = Worker::start();
    }
    let mut seed = 7_u64;
    for round in 0..300 {
        let mut payload = good.payload.to_vec();
        for _ in 0..=round % 40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(seed >> 33).unwrap() % (payload.len() - 4) + 4;
            payload[at] ^= u8::try_from(seed >> 24 & 0xff).unwrap();
        }
        let damaged = Request { payload: payload.into(), ..good.clone() };
        if worker.ask(&damaged).is_none() {
            worker = Worker::start();
            continue;
        }
        assert!(worker.peak_kb("VmPeak:") < base_kb + (300 << 10), "round {round}");
    }
    assert_bars(home.path(), &worker.ask(&good).unwrap().unwrap(), (320, 180));
}

/// Returns a sequence parameter set of 16384x16384: 1024 macroblocks in each direction.
fn giant_set() -> Vec<u8> {
    let mut bits = String::new();
    let golomb = |value: u32| {
        let code = format!("{:b}", value + 1);
        format!("{}{code}", "0".repeat(code.len() - 1))
    };
    // Baseline, level 5.1, id 0, frame numbers of 4 bits, order type 2, one reference, no gaps, the size, frames only.
    for value in [0, 0, 2, 1] {
        bits += &golomb(value);
    }
    bits += "0";
    bits += &golomb(1023);
    bits += &golomb(1023);
    // Frames only, direct inference, no cropping, no VUI, the stop bit.
    bits += "110001";
    while !bits.len().is_multiple_of(8) {
        bits += "0";
    }
    let body = bits
        .as_bytes()
        .chunks(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap());
    [0x67, 66, 0, 51].into_iter().chain(body).collect()
}
