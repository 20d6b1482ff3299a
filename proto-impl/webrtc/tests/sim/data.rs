//! Simulations of data channels, with media and without.

use netsim::{Clock, Pair, ms, secs};
use sctp::{ChannelId, Kind, Options, Reliability};
use sdp::{Description, Direction, MediaKind};
use webrtc::{Error, Event};

use crate::harness::{
    CLIENT, End, SERVER, Studio, both_connected, client_config, exchange, preferences, server_config,
};

const LARGE: usize = 200_000;

fn read(text: &str) -> Description {
    Description::read(text.as_bytes()).unwrap()
}

struct Ends {
    clock: Clock,
    client: End,
    server: End,
}

impl Ends {
    fn new(seed: u64) -> Self {
        let clock = Clock::new();
        let mut client = End::new(&clock, client_config(), CLIENT, SERVER, seed);
        let server = End::new(&clock, server_config(), SERVER, CLIENT, seed);
        client.peer.add_local(clock.now(), CLIENT).unwrap();
        Self { clock, client, server }
    }

    /// Makes an offer without media.
    fn offer(&mut self) -> String {
        self.client.peer.take_data();
        self.client.peer.offer(&[]).unwrap().write()
    }

    fn answer(&mut self, offer: &str) -> Result<String, Error> {
        let answered = self.server.peer.handle_offer(self.clock.now(), &read(offer), |_, _| None);
        answered.map(|answer| answer.write())
    }

    fn connect(mut self, seed: u64, loss: f64) -> Pair<End, End> {
        let offer = self.offer();
        self.server.peer.take_data();
        let answer = self.answer(&offer).unwrap();
        self.client.peer.handle_answer(self.clock.now(), &read(&answer)).unwrap();
        Pair::new(seed, self.clock, self.client, self.server).links(|link| link.latency(ms(20)).loss(loss))
    }
}

fn messages(end: &End) -> Vec<(ChannelId, Kind, Vec<u8>)> {
    let message = |event: &Event| match event {
        Event::Message { channel, kind, payload } => Some((*channel, *kind, payload.to_vec())),
        _ => None,
    };
    end.data.iter().filter_map(message).collect()
}

fn opened(end: &End) -> Vec<String> {
    let label = |event: &Event| match event {
        Event::ChannelOpened(opened) => Some(opened.label.clone()),
        _ => None,
    };
    end.data.iter().filter_map(label).collect()
}

/// Exchanges messages in both directions over channels opened by both ends.
fn talk(pair: &mut Pair<End, End>) {
    let now = pair.clock.now();
    let ours = pair.a.peer.open_channel(now, "from a", "", Options::default()).unwrap();
    let theirs = pair.b.peer.open_channel(now, "from b", "", Options::default()).unwrap();
    assert_ne!(ours, theirs);
    let (text, bytes) = (b"text".to_vec(), vec![7; LARGE]);
    pair.a.peer.send_data(now, ours, Kind::Text, text.clone().into()).unwrap();
    pair.a.peer.send_data(now, ours, Kind::Binary, bytes.clone().into()).unwrap();
    pair.b.peer.send_data(now, theirs, Kind::Binary, bytes.clone().into()).unwrap();
    pair.b.peer.send_data(now, theirs, Kind::Text, text.clone().into()).unwrap();
    pair.run_until(secs(600), |a, b| messages(a).len() == 2 && messages(b).len() == 2).unwrap();
    assert_eq!(messages(&pair.b), [(ours, Kind::Text, text.clone()), (ours, Kind::Binary, bytes.clone())]);
    assert_eq!(messages(&pair.a), [(theirs, Kind::Binary, bytes), (theirs, Kind::Text, text)]);
    assert_eq!((opened(&pair.a), opened(&pair.b)), (vec!["from b".to_owned()], vec!["from a".to_owned()]));
    // Each end is notified that the other accepted its channel, and that a channel was closed.
    pair.a.peer.close_channel(pair.clock.now(), ours);
    pair.run_until(secs(60), |a, b| {
        [a, b].iter().all(|end| end.data.contains(&Event::ChannelClosed(ours)))
            && b.data.contains(&Event::ChannelAccepted(theirs))
    })
    .unwrap();
}

#[test]
fn messages_go_both_ways_without_media() {
    for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.2)] {
        let mut pair = Ends::new(seed).connect(seed, loss);
        pair.run_until(secs(60), both_connected).unwrap();
        talk(&mut pair);
        assert!(pair.a.peer.has_data() && pair.b.peer.has_data());
    }
}

#[test]
fn messages_go_both_ways_beside_media() {
    let mut ends = Ends::new(4);
    ends.client.peer.take_data();
    ends.server.peer.take_data();
    exchange(&ends.clock, &mut ends.client, &mut ends.server, Direction::SendOnly);
    let mut pair = Pair::new(4, ends.clock, ends.client, ends.server).links(|link| link.latency(ms(20)));
    pair.run_until(secs(5), both_connected).unwrap();
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(5), 4));
    talk(&mut pair);
    pair.run_for(secs(6)).unwrap();
    let (video, audio) = (pair.b.verifier.video(), pair.b.verifier.audio());
    assert_eq!([audio.received, video.received], pair.a.studio.as_ref().unwrap().made);
}

#[test]
fn channels_may_be_opened_before_there_is_a_path() {
    let mut pair = Ends::new(5).connect(5, 0.0);
    let now = pair.clock.now();
    let channel = pair.b.peer.open_channel(now, "early", "", Options::default()).unwrap();
    pair.b.peer.send_data(now, channel, Kind::Text, "first".into()).unwrap();
    pair.run_until(secs(5), |a, _| messages(a).len() == 1).unwrap();
    assert!(pair.a.data.contains(&Event::DataConnected));
}

#[test]
fn what_was_not_negotiated_is_refused_and_costs_nothing() {
    // The server does not accept data channels, so nothing in the offer is usable.
    let mut ends = Ends::new(6);
    let offer = ends.offer();
    assert_eq!(ends.answer(&offer), Err(Error::NoMedia));
    // With media, only the section of data channels is rejected.
    let mut ends = Ends::new(6);
    ends.client.peer.take_data();
    let now = ends.clock.now();
    let offer = exchange(&ends.clock, &mut ends.client, &mut ends.server, Direction::SendOnly);
    assert!(offer.contains("m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"), "{offer}");
    for line in ["a=sctp-port:5000\r\n", "a=max-message-size:262144\r\n", "a=group:BUNDLE 0 1 2\r\n"] {
        assert!(offer.contains(line), "{line}");
    }
    for end in [&mut ends.client, &mut ends.server] {
        assert!(!end.peer.has_data() && end.peer.data_stats().is_none() && end.peer.data_room() == 0);
        assert_eq!(end.peer.open_channel(now, "x", "", Options::default()), Err(sctp::OpenError::Closed));
        let nobody = ChannelId(0);
        assert_eq!(
            end.peer.send_data(now, nobody, Kind::Text, "x".into()),
            Err(sctp::SendError::NoChannel(nobody))
        );
        end.peer.close_channel(now, nobody);
    }
}

#[test]
fn sections_of_data_are_taken_in_the_forms_that_peers_have() {
    for (change, taken) in [
        (("", ""), true),
        (("UDP/DTLS/SCTP", "TCP/DTLS/SCTP"), true),
        (("a=sctp-port:5000\r\n", ""), true),
        (("a=max-message-size:262144\r\n", ""), true),
        (("a=max-message-size:262144", "a=max-message-size:0"), true),
        // A section of data channels that is the only section need not be bundled.
        (("a=group:BUNDLE 0\r\n", ""), true),
        (("UDP/DTLS/SCTP", "DTLS/SCTP"), false),
        (("m=application 9", "m=application 0"), false),
        (("a=fingerprint", "a=nothing"), false),
    ] {
        let mut ends = Ends::new(7);
        ends.server.peer.take_data();
        let offer = ends.offer().replace(change.0, change.1);
        let answer = ends.answer(&offer);
        assert_eq!(answer.is_ok(), taken, "{change:?} {answer:?}");
        assert_eq!(ends.server.peer.has_data(), taken);
    }
}

#[test]
fn the_association_outlives_later_offers() {
    let mut ends = Ends::new(8);
    ends.client.peer.take_data();
    ends.server.peer.take_data();
    let offer = exchange(&ends.clock, &mut ends.client, &mut ends.server, Direction::SendOnly);
    let mut pair = Pair::new(8, ends.clock, ends.client, ends.server).links(|link| link.latency(ms(20)));
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    let channel = pair.a.peer.open_channel(now, "x", "", Options::default()).unwrap();
    pair.run_until(secs(5), |_, b| opened(b).len() == 1).unwrap();
    let again = pair.b.peer.handle_offer(pair.clock.now(), &read(&offer), |_, media| {
        let index = usize::from(media.kind == MediaKind::Video);
        Some(preferences(Direction::RecvOnly)[index].1.clone())
    });
    assert!(again.unwrap().write().contains("m=application 9"));
    pair.a.peer.send_data(pair.clock.now(), channel, Kind::Text, "still".into()).unwrap();
    pair.run_until(secs(5), |_, b| messages(b).len() == 1).unwrap();
}

#[test]
fn unreliable_channels_lose_whole_messages() {
    let mut pair = Ends::new(9).connect(9, 0.15);
    pair.run_until(secs(60), both_connected).unwrap();
    let now = pair.clock.now();
    let options = Options { unordered: true, reliability: Reliability::Retransmits(0) };
    let channel = pair.a.peer.open_channel(now, "x", "", options).unwrap();
    (0..100u8).for_each(|n| {
        pair.a.peer.send_data(now, channel, Kind::Binary, vec![n; 2000].into()).unwrap();
    });
    pair.run_for(secs(120)).unwrap();
    let got = messages(&pair.b);
    assert!((10..100).contains(&got.len()), "{}", got.len());
    assert!(got.iter().all(|(_, _, payload)| *payload == vec![payload[0]; 2000]));
}

/// Checks that memory stays limited, and media continues, if an owner does not poll events and its peer sends
/// endlessly.
#[test]
fn a_flood_of_messages_is_bounded_and_hurts_no_media() {
    let mut pair = Ends::new(10).connect(10, 0.0);
    pair.run_until(secs(60), both_connected).unwrap();
    let now = pair.clock.now();
    let channel = pair.a.peer.open_channel(now, "x", "", Options::default()).unwrap();
    let mut sent = 0;
    for _ in 0..200 {
        let now = pair.clock.now();
        while pair.a.peer.send_data(now, channel, Kind::Binary, vec![0; 60_000].into()).is_ok() {
            sent += 1;
        }
        pair.run_for(ms(50)).unwrap();
    }
    pair.run_for(secs(5)).unwrap();
    assert_eq!(messages(&pair.b).len(), sent);
    assert!(sent > 100, "{sent}");
    assert!(pair.a.held_most < 2 << 20, "{}", pair.a.held_most);
    assert!(pair.b.held_most < 2 << 20, "{}", pair.b.held_most);
    // The end of the session is the last event, even if there are messages before it.
    pair.a.close(pair.clock.now());
    pair.run_until(secs(5), |a, b| a.closed.is_some() && b.closed.is_some()).unwrap();
}
