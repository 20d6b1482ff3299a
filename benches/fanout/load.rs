//! The load: publishers and viewers, all in one loop of one thread, so that their core goes to reading.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use millstream::bench::{
    Clip, Peer, Player, PlayerOptions, Publisher, PublisherOptions, Role, SAMPLE, Score, Sockets, Tally,
    Target,
};
use millstream::io::load::{Destination, Load as Loop};

use super::options::Class;
use super::records::Recorder;
use super::rest::Asker;

/// A byte stream without TLS.
const PLAIN: (bool, Sockets) = (false, Sockets::Stream);
/// Latency above which a unit counts as late.
const LATE: Duration = Duration::from_millis(100);
/// Latency above which a unit over SRT counts as late; SRT players hold received data for 120 ms.
const LATE_SRT: Duration = Duration::from_millis(220);
/// Maximum number of connections that are in their handshake at the same time.
const CONNECTING_MAX: usize = 32;
/// Maximum number of callers with a passphrase that are in their handshake at the same time. The server derives
/// the keys of twenty callers per address and second, and a caller that is not served within three seconds gives
/// up.
const CONNECTING_MAX_SECURED: usize = 8;
/// Time limit for all connections to become ready.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// Maximum time to wait for units after the last one was sent; units that are then missing count as lost.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const DRAIN_STEP: Duration = Duration::from_millis(200);
/// First tag of the connections that query the API.
const ASKERS: usize = 1 << 32;
/// Number of API connections that are open at the same time.
const ASKERS_AT_ONCE: usize = 8;
const ASKERS_STEP: Duration = Duration::from_millis(5);

/// Addresses of the server.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The address for publishers.
    pub publish: SocketAddr,
    /// The address for viewers.
    pub play: SocketAddr,
    /// The address of the API.
    pub rest: SocketAddr,
    /// True if the server is a bare loop, which speaks no RTMP with publishers.
    pub bare: bool,
    /// The server of another project, if it is one: its viewers use other URLs.
    pub other: Option<super::peers::Peer>,
}

/// The event loop that drives all publishers and viewers.
pub struct Load {
    addresses: Addresses,
    class: Class,
    inner: Loop,
    opened: usize,
}

impl Load {
    /// Creates a load without connections.
    pub fn new(addresses: Addresses, class: Class, spin: bool) -> Result<Self, String> {
        let late = if matches!(class, Class::Srt | Class::SrtAes) { LATE_SRT } else { LATE };
        let inner = Loop::new(late, spin).map_err(|error| error.to_string())?;
        Ok(Self { addresses, class, inner, opened: 0 })
    }

    /// Connects one publisher per stream, and lets them send.
    pub fn publish(&mut self, streams: usize, clip: &Arc<Clip>) -> Result<(), String> {
        let gop = Duration::from_millis(clip.gop_ms());
        for stream in 0..streams {
            // The streams begin at different times, so that their key frames do not coincide.
            let phase = gop.mul_f64(stream as f64 / streams as f64);
            let now = Loop::now();
            let peer: Box<dyn Peer> = if self.addresses.bare {
                Box::new(Recorder::new(now, Arc::clone(clip), self.class, stream, phase))
            } else {
                let url = format!("rtmp://{}/live/bench{stream}", self.addresses.publish);
                let target = Target::parse(&url, stream).map_err(|error| error.to_string())?;
                let options =
                    PublisherOptions { target, clip: Arc::clone(clip), phase, timeout: CONNECT_MAX };
                Box::new(Publisher::new(now, &options, self.seed()))
            };
            self.open(self.addresses.publish, PLAIN, peer, stream)?;
        }
        self.wait_for_all("the publishers")
    }

    /// Connects `viewers` viewers, spread over the streams.
    pub fn play(&mut self, viewers: usize, streams: usize, stalled: bool) -> Result<(), String> {
        for viewer in 0..viewers {
            let stream = viewer % streams.max(1);
            let target = self.class.target(self.addresses.play, stream, self.addresses.other)?;
            let options = PlayerOptions { target, timeout: CONNECT_MAX, stalled };
            let way = (options.target.is_tls(), options.target.sockets());
            let player: Box<dyn Peer> = Box::new(Player::new(Loop::now(), &options, self.seed()));
            let peer: Box<dyn Peer> =
                if stalled { Box::new(super::records::Uncounted(player)) } else { player };
            self.open(self.addresses.play, way, peer, stream)?;
        }
        self.wait_for_all("the viewers")
    }

    /// Runs the publishers and viewers for this time.
    pub fn run_for(&mut self, time: Duration) -> Result<(), String> {
        self.inner.run_for(time).map_err(|error| error.to_string())
    }

    /// Queries the API for the same broadcast again and again for this time. Returns the number of answers.
    pub fn ask(&mut self, time: Duration) -> Result<u64, String> {
        let answers = Arc::default();
        let until = Instant::now() + time;
        let mut began = 0;
        while Instant::now() < until {
            // The server closes a connection after some requests, so closed ones are replaced.
            let gone = self.inner.outcomes().filter(|one| one.tag >= ASKERS && one.gone.is_some()).count();
            while began < gone + ASKERS_AT_ONCE {
                let asker = Asker::new(self.addresses.rest, Arc::clone(&answers));
                self.open(self.addresses.rest, PLAIN, Box::new(asker), ASKERS + began)?;
                began += 1;
            }
            self.run_for(ASKERS_STEP)?;
        }
        Ok(answers.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Begins the measured window.
    pub fn clear(&mut self) {
        self.inner.clear();
    }

    /// The viewers' counters since [`Load::clear`].
    pub fn played(&self) -> Tally {
        self.inner.tally(Role::Play).clone()
    }

    /// The publishers' counters.
    pub fn published(&self) -> Tally {
        self.inner.tally(Role::Publish).clone()
    }

    /// Stops each publisher after a video unit, so that no audio is left waiting, and reads until everything has
    /// arrived.
    pub fn stop(&mut self) -> Result<(), String> {
        self.inner.finish();
        let limit = Instant::now() + DRAIN_MAX;
        self.run_for(DRAIN_STEP)?;
        while self.lost().0 > 0 && Instant::now() < limit {
            self.run_for(DRAIN_STEP)?;
        }
        Ok(())
    }

    /// Returns the number of units that viewers who read did not receive, and the number of viewers whose
    /// connection ended. Call [`Load::stop`] first.
    pub fn lost(&self) -> (u64, usize) {
        let mut made = Vec::new();
        for outcome in self.inner.outcomes() {
            if let Score::Made(units) = outcome.score {
                made.push(units);
            }
        }
        let (mut lost, mut gone) = (0, 0);
        for outcome in self.inner.outcomes() {
            let Score::Got(sequences) = outcome.score else { continue };
            let units = made.get(outcome.tag).copied().unwrap_or_default();
            // WebRTC carries no AAC, so viewers by WHEP only get the video.
            let kinds = if self.class == Class::Whep { 1 } else { sequences.len() };
            lost += sequences
                .iter()
                .zip(units)
                .take(kinds)
                .map(|(one, made)| one.missing(made) + one.repeated)
                .sum::<u64>();
            gone += usize::from(outcome.gone.is_some());
        }
        (lost, gone)
    }

    fn seed(&self) -> Seed {
        Seed::from_number(u64::try_from(self.opened).unwrap_or(0))
    }

    fn open(
        &mut self,
        address: SocketAddr,
        (tls, sockets): (bool, Sockets),
        peer: Box<dyn Peer>,
        tag: usize,
    ) -> Result<(), String> {
        let limit = Instant::now() + CONNECT_MAX;
        let most = if self.class == Class::SrtAes { CONNECTING_MAX_SECURED } else { CONNECTING_MAX };
        while self.inner.unsettled() >= most && Instant::now() < limit {
            self.inner.turn(limit).map_err(|error| error.to_string())?;
        }
        let to = Destination::to(address, tls, sockets, true);
        let opened = to.and_then(|to| self.inner.open(&Arc::new(to), peer, tag));
        self.opened += 1;
        opened.map_err(|error| format!("connect: {error}"))
    }

    fn wait_for_all(&mut self, what: &str) -> Result<(), String> {
        let limit = Instant::now() + CONNECT_MAX;
        while self.inner.unsettled() > 0 && Instant::now() < limit {
            self.inner.turn(limit).map_err(|error| error.to_string())?;
        }
        match self.inner.outcomes().find_map(|outcome| outcome.gone.map(str::to_owned)) {
            Some(why) => Err(format!("{what}: {why}")),
            None if self.inner.unsettled() > 0 => {
                Err(format!("{what}: {} are not ready", self.inner.unsettled()))
            }
            None => Ok(()),
        }
    }
}

/// Returns the clip of all publishers, padded to this bit rate, with pictures of `slices` slices.
pub fn clip(bits_per_second: u64, slices: usize) -> Result<Arc<Clip>, String> {
    let clip = Clip::read(SAMPLE).and_then(|clip| clip.padded(bits_per_second));
    clip.map(|clip| Arc::new(clip.sliced(slices))).map_err(|error| error.to_string())
}
