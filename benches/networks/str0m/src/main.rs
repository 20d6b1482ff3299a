//! Views a stream with str0m: run by stacks.py, which carries the offer to the server.
//!
//! 1. It prints its offer, a line of JSON.
//! 2. It reads the answer, a line of JSON, in which the relay is the server's only candidate.
//! 3. It notes each picture that can be decoded, and each packet of the audio.
//! 4. It reads a further line, or the end of the input, and prints what it has seen.

use std::error::Error;
use std::io::{ErrorKind, stdin};
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, KeyframeRequestKind, MediaData, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::stats::MediaIngressStats;
use str0m::{Candidate, Event, Input, Output, Rtc};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Maximum time until a command from the input is read.
const TURN: Duration = Duration::from_millis(10);
/// Least time between two requests for a key frame.
const PLI_EVERY: Duration = Duration::from_secs(1);
/// Number of packets that str0m holds to put them in order. This is more than the largest key frame has; with its
/// default of 30, str0m drops such a frame.
const REORDERED: usize = 500;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    str0m::crypto::from_feature_flags().install_process_default();
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut rtc = Rtc::builder()
        .set_reordering_size_video(REORDERED)
        .set_stats_interval(Some(LOOK_EVERY))
        .build(Instant::now());
    rtc.add_local_candidate(Candidate::host(socket.local_addr()?, "udp")?);
    let (video, pending) = offer(&mut rtc)?;
    let commands = lines();
    let answer: Value = serde_json::from_str(&commands.recv()?)?;
    let answer = SdpAnswer::from_sdp_string(answer["answer"].as_str().ok_or("no answer")?)?;
    rtc.sdp_api().accept_answer(pending, answer)?;
    let seen = watch(&mut rtc, &socket, &commands, Seen::new(video))?;
    println!("{}", seen.report());
    Ok(())
}

fn offer(rtc: &mut Rtc) -> Result<(Mid, SdpPendingOffer), Failure> {
    let mut changes = rtc.sdp_api();
    let [video, _] = [MediaKind::Video, MediaKind::Audio]
        .map(|kind| changes.add_media(kind, Direction::RecvOnly, None, None, None));
    let (offer, pending) = changes.apply().ok_or("nothing to offer")?;
    println!("{}", json!({ "offer": offer.to_sdp_string() }));
    Ok((video, pending))
}

/// Reads the lines of the input on a thread. The receiver's lines end when the input ends.
fn lines() -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

fn watch(
    rtc: &mut Rtc,
    socket: &UdpSocket,
    commands: &Receiver<String>,
    mut seen: Seen,
) -> Result<Seen, Failure> {
    let local = socket.local_addr()?;
    let mut buffer = vec![0; 2000];
    while matches!(commands.try_recv(), Err(TryRecvError::Empty)) {
        let deadline = match rtc.poll_output()? {
            Output::Timeout(deadline) => deadline,
            Output::Transmit(transmit) => {
                socket.send_to(&transmit.contents, transmit.destination)?;
                continue;
            }
            Output::Event(event) => {
                seen.note(rtc, event);
                continue;
            }
        };
        let wait = deadline.saturating_duration_since(Instant::now()).min(TURN);
        if wait.is_zero() {
            rtc.handle_input(Input::Timeout(Instant::now()))?;
            continue;
        }
        socket.set_read_timeout(Some(wait))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, source)) => {
                let contents = buffer[..length].try_into()?;
                let received = Receive { proto: Protocol::Udp, source, destination: local, contents };
                rtc.handle_input(Input::Receive(Instant::now(), received))?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                rtc.handle_input(Input::Timeout(Instant::now()))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seen)
}

/// The observations of a viewer.
struct Seen {
    video: Mid,
    /// True from a gap until the next key frame.
    is_broken: bool,
    pli_at: Option<Instant>,
    keys: usize,
    pictures: Vec<u64>,
    sound: Vec<(f64, f64)>,
    looks: Vec<Value>,
    counters: Option<MediaIngressStats>,
}

impl Seen {
    fn new(video: Mid) -> Self {
        let (pictures, sound, looks) = (Vec::new(), Vec::new(), Vec::new());
        Self { video, is_broken: true, pli_at: None, keys: 0, pictures, sound, looks, counters: None }
    }

    fn note(&mut self, rtc: &mut Rtc, event: Event) {
        match event {
            Event::MediaData(data) if data.mid == self.video => self.picture(rtc, &data),
            Event::MediaData(data) => {
                self.sound.push((wall_ms(data.network_time), data.time.as_seconds() * 1000.0))
            }
            Event::MediaIngressStats(counters) if counters.mid == self.video => {
                self.counters = Some(counters);
                self.looks.push(self.look());
            }
            _ => {}
        }
    }

    fn picture(&mut self, rtc: &mut Rtc, data: &MediaData) {
        if data.is_keyframe() {
            self.is_broken = false;
            self.keys += 1;
        } else if !data.contiguous {
            self.is_broken = true;
        }
        if !self.is_broken {
            self.pictures.push(now_ms());
        } else if self.pli_at.is_none_or(|at| at.elapsed() >= PLI_EVERY) {
            let asked = rtc
                .writer(self.video)
                .map(|mut writer| writer.request_keyframe(None, KeyframeRequestKind::Pli));
            if let Some(Ok(())) = asked {
                self.pli_at = Some(Instant::now());
            }
        }
    }

    fn look(&self) -> Value {
        let video = self.counters.as_ref().map(|counters| {
            json!({
                "framesDecoded": self.pictures.len(),
                "keyFramesDecoded": self.keys,
                "packetsReceived": counters.packets,
                "bytesReceived": counters.bytes,
                "nackCount": counters.nacks,
                "pliCount": counters.plis,
            })
        });
        json!({ "at": now_ms(), "video": video })
    }

    fn report(mut self) -> Value {
        self.looks.push(self.look());
        json!({ "pictures": self.pictures, "looks": self.looks, "sound": self.sound })
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock at an instant of the past.
fn wall_ms(at: Instant) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs_f64() - at.elapsed().as_secs_f64()) * 1000.0
}
