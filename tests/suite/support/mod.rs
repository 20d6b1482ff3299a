//! Shared parts of the tests: a server process, an API client, RTMP peers, real programs, a bystander.

mod api;
mod bystander;
mod captured;
mod media;
mod ports;
mod programs;
mod receiver;
mod relay;
pub mod rtc;
mod rtc_raw;
mod rtmp_peer;
mod server;
mod srt;
mod srt_knock;
pub mod world;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

pub use api::{Api, Reply, raw_exchange};
pub use bystander::Bystander;
pub use captured::Captured;
pub use media::{coded_file, make_once, media_file, source_packets};
pub use ports::{own_port, wait_until_bound};
pub use programs::{
    Nginx, Packet, Program, bare_md5_by, ffmpeg9, frame_md5, frame_md5_by, python, run, unit_md5, unit_md5_by,
};
pub use receiver::{Manner, Receiver};
pub use relay::{Relay, Way};
pub use rtc::{Over, RtcClient, h264_section, header, offer_to, rtc_peer, rtc_peer_that_checks_once};
pub use rtc_raw::RawRtc;
pub use rtmp_peer::{Player, Publisher, RtmpPeer, publish_synthetic, unit_payload};
pub use server::{Home, Server};
pub use srt::{SrtTool, SrtUrl, ts_file};
pub use srt_knock::{Knock, data_is_encrypted, forged, goodbye, induction, socket_id};
pub use world::{Id as SimId, World};

/// Minimum time that [`wait_for`] waits, because a loaded machine may be slow without a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds. The limit only detects hangs, and is never below half a minute.
///
/// # Panics
/// The condition does not hold in time.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let limit = limit.max(PATIENCE);
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Environment variable with the number of [`network_seeds`].
const NETWORK_SEEDS: &str = "MILLSTREAM_NETWORK_SEEDS";

/// Returns the seeds of the simulated networks between whole servers and their clients. Such tests run in real time, so
/// there is only one seed, unless the variable asks for more.
pub fn network_seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var(NETWORK_SEEDS).ok().and_then(|seeds| seeds.parse().ok());
    11..11 + seeds.unwrap_or(1)
}

/// Connects to a server from an address of 127.0.0.0/8.
pub fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from: SocketAddr = format!("{from}:0").parse().unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect_timeout(&to.into(), Duration::from_secs(20)).unwrap();
    socket.into()
}

/// Returns a duration of seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns a duration of milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
