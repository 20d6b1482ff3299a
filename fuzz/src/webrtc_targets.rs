//! Target for a WebRTC session: a client that publishes and a server that receives, with an arbitrary network in
//! between.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crypto::Seed;
use dtls::Identity;
use ice::Path;
use media::codec::{Codec, CodecConfig, vp8};
use rtp::NtpAnchor;
use sdp::{Description, Direction, MediaKind};
use webrtc::{Config, Event, IceMode, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

/// Maximum steps of an input, which bound its running time.
const STEPS_MAX: usize = 400;
/// Maximum number of rounds that a handshake without losses needs.
const ROUNDS_MAX: usize = 50;
/// Maximum number of bytes that a session may hold, also during its handshake.
const HELD_MAX: usize = 80 << 10;

/// Fixed identities for all inputs, because keys are costly to make.
static IDENTITIES: LazyLock<[Arc<Identity>; 2]> = LazyLock::new(|| {
    [1, 2].map(|n| Arc::new(Identity::self_signed(&Seed::from_number(n)).expect("a fresh key is good")))
});
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn addresses() -> [SocketAddr; 3] {
    [([203, 0, 113, 7], 5000), ([192, 0, 2, 1], 8000), ([198, 51, 100, 6], 6000)].map(SocketAddr::from)
}

struct End {
    peer: Peer,
    queue: VecDeque<Vec<u8>>,
    connected: bool,
    closed: bool,
}

impl End {
    fn new(now: Instant, ice: IceMode, which: usize) -> Self {
        let config = Arc::new(Config::new(ice, Arc::clone(&IDENTITIES[which])));
        let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let seed = Seed::from_number(7).derive("peer", which as u64);
        let peer = Peer::new(now, config, anchor, seed).expect("there is an identity");
        Self { peer, queue: VecDeque::new(), connected: false, closed: false }
    }

    /// Takes the peer's events, and checks what must hold at any time.
    fn drain(&mut self, now: Instant, track: Option<&Track>) {
        while let Some(event) = self.peer.poll_event() {
            assert!(!self.closed, "nothing follows the end");
            self.connected |= event == Event::Connected;
            self.closed |= matches!(event, Event::Closed(_));
        }
        let mut out = Datagrams::new();
        while self.peer.poll_transmit(now, |_| track.map(Track::log), &mut out).is_some() {
            assert!(!out.is_empty());
            self.queue.extend((0..out.len()).map(|n| out.get(n).to_vec()));
            out.clear();
        }
        assert!(self.peer.held_bytes() < HELD_MAX);
        let media = self.peer.media_path().is_some();
        assert!(!media || self.connected, "no media before the handshake");
    }
}

/// Runs two peers. The first byte says whether both are connected at the start. Each step then has three bytes:
/// the end, the operation, and its argument.
pub fn webrtc_peer(data: &[u8]) {
    let Some((&start, mut rest)) = data.split_first() else { return };
    let mut now = *EPOCH;
    let [client, server, attacker] = addresses();
    let lite = IceMode::Lite { config: Arc::default(), addresses: vec![server] };
    let mut ends = [End::new(now, IceMode::Full(Arc::default()), 0), End::new(now, lite, 1)];
    let mut track = Track::new(Codec::Vp8, 1100).expect("VP8 is carried");
    exchange(now, &mut ends, client);
    if start & 1 == 1 {
        connect(&mut now, &mut ends);
    }
    let paths = [Path::udp(client, server), Path::udp(server, client)];
    let foreign = [Path::udp(client, attacker), Path::udp(server, attacker)];
    for _ in 0..STEPS_MAX {
        let [step, value, behind @ ..] = rest else { break };
        rest = behind;
        let to = usize::from(step & 1);
        let from = 1 - to;
        let path = if step & 2 == 0 { paths[to] } else { foreign[to] };
        match step >> 2 & 7 {
            0 | 1 => {
                if let Some(mut datagram) = ends[from].queue.pop_front() {
                    ends[to].peer.handle_datagram(now, path, &mut datagram);
                }
            }
            2 => drop(ends[from].queue.pop_front()),
            3 => {
                // The datagram is damaged, truncated, or replayed later.
                if let Some(mut datagram) = ends[from].queue.pop_front() {
                    let at = usize::from(*value) % datagram.len();
                    let again = datagram.clone();
                    datagram[at] ^= 1 << (value % 8);
                    ends[to].peer.handle_datagram(now, path, &mut datagram);
                    ends[to].peer.handle_datagram(now, path, &mut again[..at].to_vec());
                    ends[from].queue.push_back(again);
                }
            }
            4 => {
                let (raw, behind) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = behind;
                ends[to].peer.handle_datagram(now, path, &mut raw.to_vec());
            }
            5 => {
                now += Duration::from_millis(u64::from(*value) * 8);
                ends[to].peer.handle_timeout(now);
                ends[to].drain(now, Some(&track));
                let late = ends[to].peer.poll_timeout().is_some_and(|at| at <= now);
                assert!(!late || !ends[to].queue.is_empty(), "a deadline does not stay in the past");
            }
            6 => {
                let unit = vec![*value; usize::from(*value) * 20 + 1];
                let config = CodecConfig::Vp8(vp8::Config::default());
                let stamp = u32::from(*value) * 3000;
                if let Ok(packets) = track.push(now, &config, false, stamp, &unit) {
                    ends[0].peer.send(SectionId(0), &packets, now);
                }
            }
            _ if *value == 0 => ends[to].peer.close(now),
            _ => drop(ends[to].peer.request_key_frame(now, SectionId(0), 0)),
        }
        for end in &mut ends {
            end.drain(now, Some(&track));
            // Datagrams that are not delivered in time are lost.
            while end.queue.len() > 256 {
                end.queue.pop_front();
            }
        }
    }
}

fn exchange(now: Instant, ends: &mut [End; 2], client: SocketAddr) {
    let [publisher, receiver] = ends;
    publisher.peer.add_local(now, client).expect("an address like others");
    let preference =
        |direction| MediaPreference { direction, formats: offered_formats(Codec::Vp8, 96), msid: None };
    let offer = publisher
        .peer
        .offer(&[(MediaKind::Video, preference(Direction::SendOnly))])
        .expect("the first offer");
    let offer = Description::read(offer.write().as_bytes()).expect("what is written is read");
    let answer = receiver.peer.handle_offer(now, &offer, |_, _| Some(preference(Direction::RecvOnly)));
    let answer = answer.expect("it is what we offer").write();
    let answer = Description::read(answer.as_bytes()).expect("what is written is read");
    publisher.peer.handle_answer(now, &answer).expect("it is what we answer");
}

fn connect(now: &mut Instant, ends: &mut [End; 2]) {
    let [client, server, _] = addresses();
    for _ in 0..ROUNDS_MAX {
        for to in 0..2 {
            let path = [Path::udp(client, server), Path::udp(server, client)][to];
            while let Some(mut datagram) = ends[1 - to].queue.pop_front() {
                ends[to].peer.handle_datagram(*now, path, &mut datagram);
                ends[to].drain(*now, None);
            }
            ends[to].peer.handle_timeout(*now);
            ends[to].drain(*now, None);
        }
        *now += Duration::from_millis(10);
        if ends.iter().all(|end| end.connected) {
            return;
        }
    }
    panic!("no losses, and no connection");
}
