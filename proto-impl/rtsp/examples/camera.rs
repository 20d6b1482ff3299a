//! A camera: sends the H.264 of a transport stream from standard input to all players over RTSP.
//!
//! ```text
//! ffmpeg -re -i file.mp4 -c copy -f mpegts - | cargo run -p millstream-rtsp --example camera -- 127.0.0.1:8554
//! ffplay -rtsp_transport tcp rtsp://127.0.0.1:8554/camera
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the sockets, the threads and the clock"
)]

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mpegts::{Demuxer, Pes, StreamKind};
use rtp::media::codec::h264;
use rtp::media::nal::{self, Nals};
use rtp::media::{Codec, CodecConfig};
use rtp::payload::{Packetizer, Payloads};
use rtp::{Bytes, Csrcs, Header, Packet, PayloadType, SequenceNumber, Ssrc};
use rtsp::sdp::Parameters;
use rtsp::{CloseReason, Config, Event, Seed, SendQueue, Server, Status, Transport};

type Failure = Box<dyn Error>;

/// Maximum number of pictures by which a player may fall behind. A slower player is disconnected.
const LAG_PICTURES_MAX: usize = 256;
const PAYLOAD_TYPE: u8 = 96;
/// Largest payload: no packet becomes longer than 1400 bytes.
const PAYLOAD_BYTES_MAX: usize = 1400 - 12;

/// Encoded picture, split into RTP payloads once for all players.
#[derive(Clone)]
struct Picture {
    timestamp: u32,
    key_frame: bool,
    payloads: Arc<[Bytes]>,
}

/// Description of the stream, the players' feeds, and their threads.
#[derive(Default)]
struct Camera {
    description: String,
    players: Mutex<Vec<SyncSender<Picture>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Camera {
    fn join(&self) -> Receiver<Picture> {
        let (feed, pictures) = sync_channel(LAG_PICTURES_MAX);
        self.players.lock().unwrap_or_else(PoisonError::into_inner).push(feed);
        pictures
    }

    fn show(&self, picture: &Picture) {
        let mut players = self.players.lock().unwrap_or_else(PoisonError::into_inner);
        players.retain(|player| player.try_send(picture.clone()).is_ok());
    }

    /// Ends all feeds, and waits until the players have received their packets.
    fn finish(&self) {
        self.players.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

/// Splits access units into payloads.
struct Encoder {
    config: CodecConfig,
    packetizer: Packetizer,
}

impl Encoder {
    /// Creates the encoder from a picture with parameter sets. Also returns the description of the stream.
    fn new(unit: &[u8]) -> Result<Option<(Self, String)>, Failure> {
        let of_type = |kind| {
            let nals = Nals::new(unit, 4).flatten();
            nals.filter(|nal| h264::nal_type(nal) == kind).collect::<Vec<_>>()
        };
        let (sps, pps) = (of_type(h264::NAL_SPS), of_type(h264::NAL_PPS));
        if sps.is_empty() {
            return Ok(None);
        }
        let config = h264::Config::of_sets(&sps, &pps)?;
        let sets: Vec<&[u8]> = config.parameter_sets().collect();
        let parameters = Parameters::default().with("packetization-mode", 1).with_h264_sets(&sets);
        let description = format!(
            "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=Camera\r\nt=0 0\r\nm=video 0 RTP/AVP {PAYLOAD_TYPE}\r\n\
             a=rtpmap:{PAYLOAD_TYPE} H264/90000\r\na=fmtp:{PAYLOAD_TYPE} {parameters}\r\na=control:trackID=0\r\n"
        );
        let packetizer = Packetizer::new(Codec::H264, PAYLOAD_BYTES_MAX).ok_or("H.264 has packets")?;
        Ok(Some((Self { config: CodecConfig::H264(config), packetizer }, description)))
    }

    fn encode(&mut self, pts: u64, unit: &[u8]) -> Result<Picture, Failure> {
        let key_frame = Nals::new(unit, 4).flatten().any(|nal| h264::nal_type(nal) == h264::NAL_IDR);
        let mut payloads = Payloads::new();
        self.packetizer.packetize(&self.config, key_frame, unit, &mut payloads)?;
        // RTP and transport streams use the same clock rate, but RTP has fewer bits.
        let timestamp = u32::try_from(pts & u64::from(u32::MAX))?;
        Ok(Picture { timestamp, key_frame, payloads: payloads.take().collect() })
    }
}

/// A player: its state machine, the feed of pictures while it plays, and the numbers of its RTP packets.
struct Session {
    machine: Server,
    camera: Arc<Camera>,
    feed: Option<Receiver<Picture>>,
    is_begun: bool,
    number: SequenceNumber,
    ssrc: Ssrc,
    is_over: bool,
}

impl Session {
    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Describe(_) => self.machine.accept_describe(now, &self.camera.description),
                Event::Setup(request) => {
                    match request.transports.into_iter().find(|one| one.channels.is_some()) {
                        Some(transport) => {
                            let ssrc = Some(self.ssrc.value());
                            self.machine.accept_setup(now, Transport { ssrc, ..transport });
                        }
                        None => self.machine.reject(now, Status::UNSUPPORTED_TRANSPORT),
                    }
                }
                Event::Play => {
                    self.machine.accept_play(now, &[]);
                    self.feed = Some(self.camera.join());
                    self.is_begun = false;
                }
                Event::Pause | Event::Teardown => self.feed = None,
                Event::Announce(_) | Event::Record => self.machine.reject(now, Status::METHOD_NOT_ALLOWED),
                // Receiver reports of the player are ignored.
                Event::Interleaved(_) => {}
                Event::Closed(reason) => {
                    eprintln!("a player has left: {reason}");
                    self.is_over = true;
                }
            }
        }
    }

    /// Sends the pictures that have arrived in the meantime. The first one sent is a key frame.
    fn play(&mut self, now: Instant) {
        while let Some(feed) = &self.feed {
            let picture = match feed.try_recv() {
                Ok(picture) => picture,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.feed = None;
                    return self.machine.close(now, CloseReason::Shutdown);
                }
            };
            self.is_begun |= picture.key_frame;
            if self.is_begun {
                self.send(&picture);
            }
        }
    }

    fn send(&mut self, picture: &Picture) {
        let Some(payload_type) = PayloadType::new(PAYLOAD_TYPE) else { return };
        for (at, payload) in picture.payloads.iter().enumerate() {
            let header = Header {
                marker: at + 1 == picture.payloads.len(),
                payload_type,
                sequence_number: self.number,
                timestamp: picture.timestamp,
                ssrc: self.ssrc,
                csrcs: Csrcs::default(),
                extension: None,
            };
            let mut packet = Vec::with_capacity(PAYLOAD_BYTES_MAX + 12);
            Packet { header, payload, padding: 0 }.write(&mut packet);
            self.machine.send_frame(0, false, packet.into());
            self.number = self.number.plus(1);
        }
    }

    fn serve(&mut self, mut socket: TcpStream) -> Result<(), Failure> {
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        socket.set_write_timeout(Some(Duration::from_secs(10)))?;
        let (mut out, mut buffer) = (SendQueue::new(), [0; 4096]);
        while !self.is_over {
            let read = socket.read(&mut buffer);
            let now = Instant::now();
            match read {
                Ok(0) => self.machine.close(now, CloseReason::PeerClosed),
                // After an error, the state machine reports `Closed`, which is handled below.
                Ok(length) => drop(self.machine.handle_bytes(now, buffer.get(..length).unwrap_or_default())),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            if self.machine.poll_timeout().is_some_and(|at| at <= now) {
                self.machine.handle_timeout(now);
            }
            self.drain(now);
            self.play(now);
            if self.machine.poll_transmit(&mut out) {
                socket.write_all(&out.take_all())?;
            }
        }
        Ok(())
    }
}

fn listen(listener: &TcpListener, camera: &Arc<Camera>) -> Result<(), Failure> {
    let seed = Seed::from_os()?;
    for number in 1.. {
        let (socket, _) = listener.accept()?;
        let seed = seed.derive("player", number);
        let ssrc = Ssrc(u32::try_from(number)?);
        let of_player = Arc::clone(camera);
        let machine = Server::new(Instant::now(), Arc::new(Config::default()), seed);
        let number = SequenceNumber(0);
        let mut session =
            Session { machine, camera: of_player, feed: None, is_begun: false, number, ssrc, is_over: false };
        let thread = thread::spawn(move || {
            if let Err(error) = session.serve(socket) {
                eprintln!("player {}: {error}", session.ssrc.value());
            }
        });
        let mut threads = camera.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
    Ok(())
}

/// Input of the camera, and the camera itself once parameter sets have arrived.
struct Input {
    listener: TcpListener,
    begun: Option<(Encoder, Arc<Camera>)>,
}

impl Input {
    fn handle_pes(&mut self, pes: &Pes) -> Result<(), Failure> {
        let (Some(pts), StreamKind::H264) = (pes.pts, pes.stream.kind) else { return Ok(()) };
        let unit = nal::to_lengths(&pes.payload);
        if self.begun.is_none()
            && let Some((encoder, description)) = Encoder::new(&unit)?
        {
            let (listener, camera) =
                (self.listener.try_clone()?, Arc::new(Camera { description, ..Camera::default() }));
            eprintln!("rtsp://{}/camera", listener.local_addr()?);
            self.begun = Some((encoder, Arc::clone(&camera)));
            thread::spawn(move || listen(&listener, &camera).map_err(|error| eprintln!("{error}")));
        }
        if let Some((encoder, camera)) = &mut self.begun {
            camera.show(&encoder.encode(pts, &unit)?);
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8554".to_owned());
    let mut own = Input { listener: TcpListener::bind(address)?, begun: None };
    let (mut demuxer, mut piece, mut is_at_end) = (Demuxer::new(), vec![0; 64 * 1024], false);
    while !is_at_end {
        let length = std::io::stdin().read(&mut piece)?;
        is_at_end = length == 0;
        let mut input = piece.get(..length).unwrap_or_default();
        if is_at_end {
            demuxer.finish();
        }
        while let Some(event) = demuxer.read(&mut input) {
            if let mpegts::Event::Pes(pes) = event {
                own.handle_pes(&pes)?;
            }
        }
    }
    if let Some((_, camera)) = own.begun {
        camera.finish();
    }
    Ok(())
}
