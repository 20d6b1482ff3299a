//! Plays a stream of a camera or a server and writes its H.264 to standard output with start codes:
//!
//! ```text
//! cargo run -p millstream-rtsp --example player -- rtsp://user:password@192.0.2.7/stream | ffplay -
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the socket and the clock"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtp::media::nal;
use rtp::payload::{Depacketizer, Format, Part};
use rtsp::sdp::{Description, Media, MediaKind};
use rtsp::{Client, ClientConfig, ClientEvent, Frame, Seed, SendQueue, TrackSetup, Uri};

/// Played track: its depacketiser, the number of the last packet, and the number of frames.
struct Track {
    depacketizer: Depacketizer,
    last: Option<u16>,
    frames: u64,
    is_written: bool,
}

/// Returns the tracks with a known format.
fn tracks(description: &Description) -> BTreeMap<usize, Track> {
    let known = |(index, media): (usize, &Media)| {
        let described = media.rtp_formats().next()?;
        let format = Format::of_description(&described).ok()??;
        let is_written = media.kind == MediaKind::Video && format == Format::H264;
        let depacketizer = Depacketizer::new(format).ok()?;
        Some((index, Track { depacketizer, last: None, frames: 0, is_written }))
    };
    description.media.iter().enumerate().filter_map(known).collect()
}

impl Track {
    fn handle_packet(&mut self, frame: &Frame) -> Result<(), Box<dyn Error>> {
        let packet = rtp::Packet::read(&frame.payload)?;
        let (header, payload) = (&packet.header, packet.payload);
        let number = header.sequence_number.0;
        let gap = self.last.replace(number).is_some_and(|last| last.wrapping_add(1) != number);
        let part = Part { timestamp: header.timestamp, marker: header.marker, gap, payload };
        if let Err(error) = self.depacketizer.handle_part(&part) {
            eprintln!("track {}: {error}", frame.track);
        }
        while let Some(unit) = self.depacketizer.poll_frame() {
            self.frames += 1;
            if self.is_written {
                std::io::stdout().write_all(&nal::to_annex_b(&unit.payload)?)?;
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: player rtsp://HOST/PATH")?;
    let uri = Uri::read(&url).ok_or("that is no URL of RTSP")?;
    let mut socket = TcpStream::connect((uri.host.as_str(), uri.port_or_default()))?;
    let now = Instant::now();
    let mut client = Client::play(now, Arc::new(ClientConfig::new(uri)), Seed::from_os()?);
    let (mut played, mut out, mut buffer) = (BTreeMap::new(), SendQueue::new(), vec![0; 64 * 1024]);
    loop {
        while let Some(event) = client.poll_event() {
            let now = Instant::now();
            match event {
                ClientEvent::Described(description) => {
                    played = tracks(&description);
                    let setups: Vec<_> = played.keys().map(|track| TrackSetup::interleaved(*track)).collect();
                    client.setup(now, &setups);
                }
                ClientEvent::Ready { .. } => eprintln!("{} tracks are played", played.len()),
                ClientEvent::Interleaved(frame) => {
                    client.media_progress(now);
                    if let Some(track) = played.get_mut(&frame.track).filter(|_| !frame.is_rtcp) {
                        track.handle_packet(&frame)?;
                    }
                }
                ClientEvent::Closed(reason) => {
                    let frames: Vec<u64> = played.values().map(|track| track.frames).collect();
                    eprintln!("closed: {reason}; frames of each track: {frames:?}");
                    return Ok(());
                }
                ClientEvent::SetUp { track, .. } => eprintln!("track {track} is set up"),
                other @ (ClientEvent::NotInterleaved
                | ClientEvent::Announced(_)
                | ClientEvent::Redirect { .. }
                | ClientEvent::Rejected { .. }) => eprintln!("{other:?}"),
            }
        }
        if client.poll_transmit(&mut out) {
            socket.write_all(&out.take_all())?;
        }
        let deadline = client.poll_timeout();
        let wait = deadline.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(Instant::now()));
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        match socket.read(&mut buffer) {
            Ok(0) => client.close(Instant::now(), rtsp::CloseReason::PeerClosed),
            // After an error, the client reports `Closed`, which is handled above.
            Ok(length) => drop(client.handle_bytes(Instant::now(), buffer.get(..length).unwrap_or_default())),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        if client.poll_timeout().is_some_and(|at| at <= Instant::now()) {
            client.handle_timeout(Instant::now());
        }
    }
}
