//! Tests the UDP and TCP port for WebRTC media, which all workers share. A client's session gets its datagrams and
//! connections, whichever worker receives them.

use crate::support::{Over, Publisher, RtcClient, Server, secs};

const WORKERS: usize = 4;
/// Number of clients. For one client in four, the worker of the session happens to receive the datagrams itself.
const CLIENTS: usize = 12;

/// Plays a stream with clients over UDP and TCP, each with its own port. Returns the number of datagrams that were
/// passed to another worker, from the metrics.
fn passed_for_viewers(setting: &str) -> f64 {
    let server = Server::start(&[&format!("server.workers={WORKERS}"), setting]);
    let publisher = Publisher::start(server.rtmp, "live", "shared");
    let over = |n| if n % 2 == 0 { Over::Udp } else { Over::Tcp };
    let mut players: Vec<RtcClient> =
        (0..CLIENTS).map(|n| RtcClient::play(&server, "shared", over(n))).collect();
    for at in 0..CLIENTS {
        let (before, after) = players.split_at_mut(at);
        let (player, after) = after.split_first_mut().unwrap();
        player.run_until("ten pictures", secs(20), |player| {
            before.iter_mut().chain(&mut *after).for_each(RtcClient::step);
            player.frames >= 10
        });
    }
    let api = server.api();
    assert_eq!(api.metric("millstream_dropped_datagrams_total", "not_passed"), 0.0);
    let passed = api.metric("millstream_passed_datagrams_total", "");
    players.iter_mut().for_each(RtcClient::close);
    publisher.stop();
    passed
}

#[test]
fn one_port_serves_the_clients_of_all_workers() {
    assert!(passed_for_viewers("webrtc.port_per_worker=false") > 0.0);
}

#[test]
fn with_a_port_of_each_worker_nothing_is_passed_on() {
    assert_eq!(passed_for_viewers("webrtc.port_per_worker=true"), 0.0);
}
