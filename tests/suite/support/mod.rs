//! What the tests share: a server process, an API client, RTMP peers, real programs, a bystander.

mod api;
mod bystander;
mod media;
mod programs;
mod rtmp_peer;
mod server;
mod world;

use std::time::{Duration, Instant};

pub use api::{Api, Reply, raw_exchange};
pub use bystander::Bystander;
pub use media::{coded_file, media_file, source_packets};
pub use programs::{Nginx, Packet, Program, ffmpeg9, frame_md5, frame_md5_by, python, run};
pub use rtmp_peer::{Player, Publisher, RtmpPeer, publish_synthetic, unit_payload};
pub use server::{Home, Server};
pub use world::{Id as SimId, World};

/// Waits until `condition` holds. The limit only detects hangs.
///
/// # Panics
/// When it does not hold in time.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
