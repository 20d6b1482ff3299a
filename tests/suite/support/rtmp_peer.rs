//! RTMP peers made of the client machine and a blocking socket, and threads that publish and play synthetic media.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use crypto::Seed;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use netsim::{MediaSource, SyntheticUnit, Verifier};
use rtmp::{Client, ClientConfig, ClientEvent, FourCcs, MediaKind, MediaMessage};
use wire::SendQueue;

/// An RTMP connection.
#[derive(Debug)]
pub struct RtmpPeer {
    pub stream: TcpStream,
    client: Client,
    message_stream: u32,
    pending: std::collections::VecDeque<ClientEvent>,
}

impl RtmpPeer {
    /// Asks to publish `app/name`. The error is the refusal's code and description.
    pub fn publish(address: SocketAddr, app: &str, name: &str) -> Result<Self, String> {
        Self::open(address, app, name, FourCcs::NONE, Client::publish)
    }

    /// Asks to play `app/name`.
    pub fn play(address: SocketAddr, app: &str, name: &str) -> Result<Self, String> {
        Self::play_announcing(address, app, name, FourCcs::NONE)
    }

    /// Asks to play `app/name` as a player that can decode these codecs.
    pub fn play_announcing(
        address: SocketAddr,
        app: &str,
        name: &str,
        four_ccs: FourCcs,
    ) -> Result<Self, String> {
        Self::open(address, app, name, four_ccs, Client::play)
    }

    fn open(
        address: SocketAddr,
        app: &str,
        name: &str,
        four_ccs: FourCcs,
        begin: impl FnOnce(Instant, Arc<ClientConfig>, Seed) -> Client,
    ) -> Result<Self, String> {
        let config = ClientConfig {
            app: app.to_owned(),
            tc_url: format!("rtmp://{address}/{app}"),
            stream: name.to_owned(),
            four_ccs,
            ..ClientConfig::default()
        };
        let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let client = begin(Instant::now(), Arc::new(config), Seed::from_number(1));
        let mut peer = Self { stream, client, message_stream: 0, pending: std::collections::VecDeque::new() };
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            match peer.next_event()? {
                Some(ClientEvent::Ready { message_stream }) => {
                    peer.message_stream = message_stream;
                    return Ok(peer);
                }
                Some(ClientEvent::Rejected { code, description }) => {
                    return Err(format!("{code}: {description}"));
                }
                Some(ClientEvent::Closed(reason)) => return Err(format!("closed: {reason:?}")),
                Some(media @ ClientEvent::Media(_)) => peer.pending.push_back(media),
                None => {}
            }
        }
        Err("no answer".to_owned())
    }

    /// Returns the next event; `None` if nothing arrived for 50 ms.
    pub fn next_event(&mut self) -> Result<Option<ClientEvent>, String> {
        if let Some(event) = self.pending.pop_front() {
            return Ok(Some(event));
        }
        self.flush().map_err(|error| error.to_string())?;
        if let Some(event) = self.client.poll_event() {
            return Ok(Some(event));
        }
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err("end of stream".to_owned()),
            Ok(count) => {
                let _ = self.client.handle_bytes(Instant::now(), &buffer[..count]);
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.to_string()),
        }
        self.flush().map_err(|error| error.to_string())?;
        Ok(self.client.poll_event())
    }

    /// Returns the next media message.
    pub fn next_media(&mut self, limit: Duration) -> Result<MediaMessage, String> {
        let began = Instant::now();
        while began.elapsed() < limit {
            match self.next_event()? {
                Some(ClientEvent::Media(message)) => return Ok(message),
                Some(ClientEvent::Closed(reason)) => return Err(format!("closed: {reason:?}")),
                Some(ClientEvent::Rejected { code, .. }) => return Err(code),
                Some(ClientEvent::Ready { .. }) | None => {}
            }
        }
        Err("no media".to_owned())
    }

    /// Sends one media message.
    pub fn send(&mut self, kind: MediaKind, timestamp: u32, payload: Bytes) -> std::io::Result<()> {
        let message = MediaMessage { message_stream: self.message_stream, kind, timestamp, payload };
        self.client.send(Instant::now(), &message);
        self.flush()
    }

    /// Sends the parameter sets of [`MediaSource`].
    pub fn send_configs(&mut self) -> std::io::Result<()> {
        let video = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
        self.send(MediaKind::Video, 0, body(&video, &MediaSource::video_config()))?;
        let audio = AudioTag::write_header(AudioPacket::SequenceHeader);
        self.send(MediaKind::Audio, 0, body(&audio, &MediaSource::audio_config()))
    }

    /// Sends one synthetic unit.
    pub fn send_unit(&mut self, unit: &SyntheticUnit) -> std::io::Result<()> {
        let timestamp = u32::try_from(unit.dts_ms).unwrap();
        if unit.is_video {
            let frame = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
            let head = VideoTag::write_header(frame, VideoPacket::Frame, i32::try_from(unit.cts_ms).unwrap());
            self.send(MediaKind::Video, timestamp, body(&head, &unit.payload))
        } else {
            self.send(
                MediaKind::Audio,
                timestamp,
                body(&AudioTag::write_header(AudioPacket::Frame), &unit.payload),
            )
        }
    }

    /// Says goodbye, and waits until the server has closed the connection.
    pub fn close(mut self) {
        self.client.close(Instant::now(), rtmp::CloseReason::Requested);
        let _ = self.flush();
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        // The server gets time to read the goodbye before the socket is closed.
        let mut rest = Vec::new();
        self.stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let _ = self.stream.read_to_end(&mut rest);
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let mut queue = SendQueue::new();
        self.client.poll_transmit(&mut queue);
        if queue.is_empty() { Ok(()) } else { self.stream.write_all(&queue.take_all()) }
    }
}

fn body(head: &[u8], payload: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(head.len() + payload.len());
    body.put_slice(head);
    body.put_slice(payload);
    body.freeze()
}

/// Returns the access unit in a media message, unless the message carries parameter sets or data.
pub fn unit_payload(message: &MediaMessage) -> Option<Bytes> {
    match message.kind {
        MediaKind::Video => {
            let tag = VideoTag::read(&message.payload).ok()?;
            (tag.packet == VideoPacket::Frame).then_some(tag.payload)
        }
        MediaKind::Audio => {
            let tag = AudioTag::read(&message.payload).ok()?;
            (tag.packet == AudioPacket::Frame).then_some(tag.payload)
        }
        MediaKind::Data => None,
    }
}

/// Publishes `units` units as fast as the server accepts them.
pub fn publish_synthetic(peer: &mut RtmpPeer, source: &mut MediaSource, units: usize) -> std::io::Result<()> {
    for _ in 0..units {
        peer.send_unit(&source.next_unit())?;
    }
    Ok(())
}

/// A thread that publishes synthetic media in real time until it is stopped.
#[derive(Debug)]
pub struct Publisher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts a publisher of about 30 video frames and 47 audio frames a second.
    pub fn start(address: SocketAddr, app: &str, name: &str) -> Self {
        Self::start_from(address, app, name, MediaSource::new(&Seed::from_number(5)))
    }

    /// Starts a publisher of this media.
    pub fn start_from(address: SocketAddr, app: &str, name: &str, mut source: MediaSource) -> Self {
        let mut peer = RtmpPeer::publish(address, app, name).unwrap();
        peer.send_configs().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            while !stopped.load(Ordering::SeqCst) {
                let unit = source.next_unit();
                let due = began + Duration::from_millis(unit.dts_ms);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if peer.send_unit(&unit).is_err() {
                    return;
                }
            }
            peer.close();
        });
        Self { stop, thread: Some(thread) }
    }

    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end();
    }
}

/// A thread that plays and verifies synthetic media until it is stopped.
#[derive(Debug)]
pub struct Player {
    stop: Arc<AtomicBool>,
    units: Arc<AtomicU64>,
    media: Arc<AtomicU64>,
    /// The longest time between two units since the value was last taken, in microseconds.
    gap: Arc<AtomicU64>,
    thread: Option<JoinHandle<Verifier>>,
}

impl Player {
    pub fn start(address: SocketAddr, app: &str, name: &str) -> Self {
        let mut peer = RtmpPeer::play(address, app, name).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (units, media) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (stopped, count, messages) = (Arc::clone(&stop), Arc::clone(&units), Arc::clone(&media));
        let longest = Arc::new(AtomicU64::new(0));
        let lately = Arc::clone(&longest);
        let thread = std::thread::spawn(move || {
            let mut verifier = Verifier::new();
            let mut last = Instant::now();
            while !stopped.load(Ordering::SeqCst) {
                match peer.next_event() {
                    Ok(Some(ClientEvent::Media(message))) => {
                        messages.fetch_add(1, Ordering::SeqCst);
                        if let Some(payload) = unit_payload(&message) {
                            let _ = verifier.feed(&payload);
                            count.fetch_add(1, Ordering::SeqCst);
                            lately.fetch_max(last.elapsed().as_micros() as u64, Ordering::SeqCst);
                            last = Instant::now();
                        }
                    }
                    Ok(Some(ClientEvent::Closed(_))) | Err(_) => break,
                    Ok(Some(ClientEvent::Ready { .. } | ClientEvent::Rejected { .. }) | None) => {}
                }
            }
            verifier
        });
        Self { stop, units, media, gap: longest, thread: Some(thread) }
    }

    /// Returns the longest time between two units since the last call.
    pub fn take_gap(&self) -> Duration {
        Duration::from_micros(self.gap.swap(0, Ordering::SeqCst))
    }

    /// Returns the number of audio and video messages received so far, synthetic or not.
    pub fn media(&self) -> u64 {
        self.media.load(Ordering::SeqCst)
    }

    /// Returns the number of units received so far.
    pub fn units(&self) -> u64 {
        self.units.load(Ordering::SeqCst)
    }

    /// True if the connection has not ended.
    pub fn is_playing(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the player. Returns the verifier of the units that it received.
    pub fn finish(mut self) -> Verifier {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
