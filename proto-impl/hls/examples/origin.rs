//! An origin server. Cuts a transport stream from standard input into segments, keeps them with a playlist in
//! memory, and serves them over HTTP:
//!
//! ```text
//! ffmpeg -re -i file.mp4 -c copy -f mpegts - | cargo run -p millstream-hls --example origin -- 127.0.0.1:8080
//! ffplay http://127.0.0.1:8080/live.m3u8
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell: it has the sockets and the threads"
)]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hls::playlist::{MediaPlaylist, Segment};
use mpegts::{CLOCK_MASK, Demuxer, Event, Kind, Muxer, Packing, Pes, StreamKind, TICKS_PER_SECOND, Unit};

/// Minimum duration of a segment; it ends at the next key frame after that.
const TARGET: Duration = Duration::from_secs(2);
/// Number of segments kept.
const SEGMENTS_MAX: usize = 6;

/// The segments that players can request.
#[derive(Default)]
struct Stream {
    first: u64,
    segments: VecDeque<(Segment, Vec<u8>)>,
    ended: bool,
}

impl Stream {
    fn push(&mut self, duration: Duration, bytes: Vec<u8>) {
        let number = self.first + self.segments.len() as u64;
        eprintln!("segment {number}: {duration:?}, {} bytes", bytes.len());
        self.segments
            .push_back((Segment { uri: format!("{number}.ts"), duration, ..Segment::default() }, bytes));
        if self.segments.len() > SEGMENTS_MAX {
            self.segments.pop_front();
            self.first += 1;
        }
    }

    fn playlist(&self) -> String {
        let longest = self.segments.iter().map(|(segment, _)| segment.duration).max().unwrap_or(TARGET);
        let playlist = MediaPlaylist {
            version: 3,
            target_duration: Duration::from_secs((longest + Duration::from_nanos(999_999_999)).as_secs()),
            media_sequence: self.first,
            ended: self.ended,
            independent_segments: true,
            segments: self.segments.iter().map(|(segment, _)| segment.clone()).collect(),
            ..MediaPlaylist::default()
        };
        playlist.to_string()
    }
}

/// Cuts a stream before key frames.
struct Cutter {
    muxer: Muxer,
    open: Vec<u8>,
    /// Time of the first picture of the growing segment.
    began: Option<u64>,
    /// Greatest distance of a unit from that first picture so far: the duration of the growing
    /// segment.
    duration: Duration,
    has_video: bool,
}

impl Cutter {
    fn set_streams(&mut self, streams: &[mpegts::Stream]) {
        let first =
            |wanted: &[StreamKind]| streams.iter().map(|one| one.kind).find(|kind| wanted.contains(kind));
        let video = first(&[StreamKind::H264, StreamKind::H265]);
        self.has_video = video.is_some();
        self.muxer.set_streams(video, first(&[StreamKind::AacAdts]));
    }

    /// Handles a unit. Returns the segment that ends before it, if any.
    fn handle_pes(&mut self, pes: &Pes) -> Option<(Duration, Vec<u8>)> {
        let kind = match pes.stream.kind {
            StreamKind::H264 | StreamKind::H265 => Kind::Video,
            StreamKind::AacAdts => Kind::Audio,
            StreamKind::AacLatm
            | StreamKind::MpegAudio { .. }
            | StreamKind::Ac3
            | StreamKind::Eac3
            | StreamKind::Opus { .. }
            | StreamKind::Id3
            | StreamKind::Splice
            | StreamKind::Other(_) => return None,
        };
        let pts = pes.pts?;
        let leads = pes.random_access && (kind == Kind::Video || !self.has_video);
        let ticks = self.began.map_or(0, |began| pts.wrapping_sub(began) & CLOCK_MASK);
        let duration = Duration::from_secs(ticks) / TICKS_PER_SECOND;
        let mut ended = None;
        if leads && (self.began.is_none() || duration >= TARGET) {
            self.open.extend(self.muxer.flush());
            let segment = std::mem::take(&mut self.open);
            ended = self.began.replace(pts).map(|_| (duration, segment));
            self.duration = Duration::ZERO;
            self.muxer.begin();
        } else if ticks < CLOCK_MASK / 2 {
            self.duration = self.duration.max(duration);
        }
        // Units before the first key frame cannot be decoded.
        if self.began.is_some() {
            let (dts, payload) = (pes.dts.unwrap_or(pts), [&pes.payload[..]]);
            let random_access = pes.random_access;
            let unit = Unit { kind, number: 0, pts, dts, random_access, payload: &payload };
            self.open.extend(self.muxer.write(&unit));
        }
        ended
    }
}

fn serve(mut socket: TcpStream, stream: &Mutex<Stream>) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let length = socket.read(&mut piece)?;
        if length == 0 || request.len() > 16 * 1024 {
            return Ok(());
        }
        request.extend_from_slice(piece.get(..length).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&request);
    let path = text.split(' ').nth(1).unwrap_or_default();
    let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    let found = match path {
        "/live.m3u8" if !stream.segments.is_empty() => {
            Some(("application/vnd.apple.mpegurl", stream.playlist().into_bytes()))
        }
        _ => {
            let of_path = |(segment, _): &&(Segment, Vec<u8>)| path.strip_prefix('/') == Some(&segment.uri);
            stream.segments.iter().find(of_path).map(|(_, bytes)| ("video/mp2t", bytes.clone()))
        }
    };
    drop(stream);
    let (status, kind, body) = match found {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", Vec::new()),
    };
    write!(
        socket,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nAccess-Control-Allow-Origin: *\r\n\
         Cache-Control: no-cache\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    socket.write_all(&body)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address)?;
    eprintln!("http://{}/live.m3u8", listener.local_addr()?);
    let stream = Arc::new(Mutex::new(Stream::default()));
    let shared = Arc::clone(&stream);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            // Serving one player at a time is enough here. If a player disconnects, only its own answer is
            // lost.
            let _ = serve(socket, &shared);
        }
    });
    let push =
        |(duration, bytes)| stream.lock().unwrap_or_else(PoisonError::into_inner).push(duration, bytes);
    let muxer = Muxer::with_packing(Packing::SEGMENT);
    let mut cutter =
        Cutter { muxer, open: Vec::new(), began: None, duration: Duration::ZERO, has_video: false };
    let (mut demuxer, mut buffer) = (Demuxer::new(), vec![0; 64 * 1024]);
    loop {
        let length = std::io::stdin().read(&mut buffer)?;
        let mut input = buffer.get(..length).unwrap_or_default();
        if length == 0 {
            demuxer.finish();
        }
        while let Some(event) = demuxer.read(&mut input) {
            match event {
                Event::Program(program) => cutter.set_streams(&program.streams),
                Event::Pes(pes) => cutter.handle_pes(&pes).into_iter().for_each(push),
                Event::Splice(_) => {}
            }
        }
        if length == 0 {
            push((cutter.duration, std::mem::take(&mut cutter.open)));
            stream.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
            // Leaves players time to fetch the last segments.
            std::thread::sleep(TARGET * 10);
            return Ok(());
        }
    }
}
