//! Two peers of WebRTC, in one process: what stands in the crate's README, as a program that has no other dependency.

use std::sync::Arc;
use std::time::{Duration, Instant};
use webrtc::ice::Path;
use webrtc::media::codec::Codec;
use webrtc::sdp::{Description, Direction, MediaKind};
use webrtc::{Config, Datagrams, Event, IceMode, MediaPreference, Peer, Seed, dtls, offered_formats, rtp};

fn main() -> Result<(), webrtc::Error> {
    let now = Instant::now();
    let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
    let identity = |n| Arc::new(dtls::Identity::self_signed(&Seed::from_number(n)).unwrap());
    let (here, there) = ("203.0.113.7:5000".parse().unwrap(), "192.0.2.1:8000".parse().unwrap());
    let server = IceMode::Lite { config: Arc::default(), addresses: vec![there] };
    let server = Arc::new(Config::new(server, identity(1)));
    let client = Arc::new(Config::new(IceMode::Full(Arc::default()), identity(2)));
    let mut client = Peer::new(now, client, anchor, Seed::from_number(3))?;
    let mut server = Peer::new(now, server, anchor, Seed::from_number(4))?;

    // The client's offer and the server's answer, as text.
    client.add_local(now, here).unwrap();
    let sends = MediaPreference {
        direction: Direction::SendOnly,
        formats: offered_formats(Codec::H264, 96),
        msid: None,
    };
    let offer = client.offer(&[(MediaKind::Video, sends)])?.write();
    let offer = Description::read(offer.as_bytes()).unwrap();
    let takes = MediaPreference {
        direction: Direction::RecvOnly,
        formats: offered_formats(Codec::H264, 96),
        msid: None,
    };
    let answer = server.handle_offer(now, &offer, |_, _| Some(takes.clone()))?.write();
    client.handle_answer(now, &Description::read(answer.as_bytes()).unwrap())?;

    let carry = |from: &mut Peer, to: &mut Peer| {
        let mut out = Datagrams::new();
        while let Some(path) = from.poll_transmit(now, |_| None, &mut out) {
            let path = Path::udp(path.remote, path.local);
            (0..out.len()).for_each(|n| to.handle_datagram(now, path, &mut out.get(n).to_vec()));
            out.clear();
        }
    };
    let mut connected = 0;
    while connected < 2 {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
        for peer in [&mut client, &mut server] {
            while let Some(event) = peer.poll_event() {
                connected += usize::from(event == Event::Connected);
            }
        }
    }
    assert_eq!(client.media_path(), Some(Path::udp(here, there)));
    Ok(())
}
