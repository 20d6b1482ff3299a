//! Simulations of later offers on an existing association (RFC 8842 §5.5), whose roles and certificates are
//! kept.

use netsim::{Clock, Pair, ms, secs};
use sdp::{Description, Direction, MediaKind, Setup};
use webrtc::{Config, Error, MediaPreference, offered_formats};

use crate::harness::{
    CLIENT, End, SERVER, Studio, both_connected, client_config, exchange, preferences, server_config, session,
};

fn read(text: &str) -> Description {
    Description::read(text.as_bytes()).unwrap()
}

fn setup(description: &Description) -> Option<Setup> {
    description.media[0].attributes.setup().copied()
}

struct Ends {
    clock: Clock,
    /// A client's offer, with `actpass`.
    offer: String,
    server: End,
}

impl Ends {
    fn new(dtls_client: bool) -> Self {
        let clock = Clock::new();
        let mut client = End::new(&clock, client_config(), CLIENT, SERVER, 1);
        let offer = client.peer.offer(&preferences(Direction::SendOnly)).unwrap().write();
        let config = Config { dtls_client, ..server_config() };
        let server = End::new(&clock, config, SERVER, CLIENT, 1);
        Self { clock, offer, server }
    }

    fn answer(&mut self, offer: &str) -> Result<Option<Setup>, Error> {
        let answered = self.server.peer.handle_offer(self.clock.now(), &read(offer), |_, media| {
            let codec = if media.kind == MediaKind::Audio {
                media::codec::Codec::Opus
            } else {
                media::codec::Codec::H264
            };
            Some(MediaPreference {
                direction: Direction::RecvOnly,
                formats: offered_formats(codec, 96),
                msid: None,
            })
        });
        answered.map(|answer| setup(&answer))
    }
}

fn with(offer: &str, setup: &str) -> String {
    offer.replace("a=setup:actpass", &format!("a=setup:{setup}"))
}

#[test]
fn the_role_of_a_running_association_stays_whatever_later_offers_leave_open() {
    let (active, passive) = (Some(Setup::Active), Some(Setup::Passive));
    for (dtls_client, first, ours) in [
        (false, "actpass", passive),
        (true, "actpass", active),
        (false, "active", passive),
        (true, "active", passive),
        (false, "passive", active),
        (true, "passive", active),
    ] {
        let mut ends = Ends::new(dtls_client);
        let offer = ends.offer.clone();
        assert_eq!(ends.answer(&with(&offer, first)), Ok(ours));
        let (same, flipped) = if ours == active { ("passive", "active") } else { ("active", "passive") };
        // An ICE restart does not require another association.
        let fragment = read(&offer).media[0].attributes.ice_ufrag().unwrap().to_owned();
        for offer in [offer.clone(), offer.replace(&fragment, "another1")] {
            for _ in 0..2 {
                assert_eq!(ends.answer(&offer), Ok(ours), "{dtls_client} {first}");
                assert_eq!(ends.answer(&with(&offer, same)), Ok(ours), "{dtls_client} {first}");
            }
            let name = ends.server.peer.local_fragment().to_owned();
            let refused = Err(Error::NewAssociation);
            assert_eq!(ends.answer(&with(&offer.replace("another1", "another2"), flipped)), refused);
            assert_eq!(ends.server.peer.local_fragment(), name, "what is refused changes nothing");
        }
    }
}

#[test]
fn another_certificate_is_another_session() {
    let mut ends = Ends::new(false);
    let offer = ends.offer.clone();
    ends.answer(&offer).unwrap();
    let line = |name: &str| format!("a=fingerprint:sha-256 {}\r\n", [name; 32].join(":"));
    let own = offer.lines().find(|line| line.starts_with("a=fingerprint")).unwrap().to_owned() + "\r\n";
    for (changed, answered) in [
        (offer.replace(&own, &line("A0")), false),
        (offer.replace(&own, &format!("{own}{}", line("A0"))), false),
        (offer.clone(), true),
    ] {
        assert_eq!(ends.answer(&changed).is_ok(), answered);
        assert_eq!(ends.answer(&changed).err(), (!answered).then_some(Error::NewAssociation));
    }
}

/// Checks that the first offerer keeps its role when the other side offers next.
#[test]
fn an_offerer_keeps_its_role_when_it_answers() {
    let mut pair = session(1, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    // The client has opened the association, since the answer said `passive`. The other side's offer is like
    // its answer, but with open roles.
    let other = End::new(&pair.clock, server_config(), SERVER, CLIENT, 1)
        .peer
        .offer(&preferences(Direction::RecvOnly));
    let restart = other.unwrap();
    assert_eq!(setup(&restart), Some(Setup::ActPass));
    let answer = pair.a.peer.handle_offer(now, &restart, |_, _| None).unwrap();
    assert_eq!(setup(&answer), Some(Setup::Active));
    // Our own offer is already answered, so another answer is refused, whatever its role.
    assert_eq!(pair.a.peer.handle_answer(now, &read(&with(&restart.write(), "active"))), Err(Error::State));
}

/// Checks a certificate change with a hundred live sessions: none of them is affected, not even by its own
/// later offers, and new sessions use the new certificate.
#[test]
fn d_17_a_new_certificate_is_in_new_answers_and_disturbs_no_session() {
    let print =
        |description: &Description| description.transport(&description.media[0]).fingerprints[0].clone();
    let identity = dtls::Identity::self_signed(&crypto::Seed::from_number(3)).unwrap();
    let rotated = {
        let Config { ice, .. } = server_config();
        Config::new(ice, std::sync::Arc::new(identity))
    };
    let begin = |seed, server: &Config| {
        let clock = Clock::new();
        let mut client = End::new(&clock, client_config(), CLIENT, SERVER, seed);
        let mut server = End::new(&clock, server.clone(), SERVER, CLIENT, seed);
        let offer = exchange(&clock, &mut client, &mut server, Direction::SendOnly);
        let mut pair = Pair::new(seed, clock, client, server);
        pair.run_until(secs(5), both_connected).unwrap();
        let now = pair.clock.now();
        let answer = pair.b.peer.handle_offer(now, &read(&offer), |_, _| None).unwrap();
        pair.a.studio = Some(Studio::new(now, secs(1), seed));
        (pair, offer, print(&answer))
    };
    let mut sessions: Vec<_> = (0..100).map(|seed| begin(seed, &server_config())).collect();
    sessions.iter_mut().for_each(|(pair, ..)| pair.run_for(ms(500)).unwrap());
    sessions.extend((100..110).map(|seed| begin(seed, &rotated)));
    let old = sessions[0].2.clone();
    for (number, (pair, offer, announced)) in sessions.iter_mut().enumerate() {
        pair.run_for(secs(1)).unwrap();
        let made = pair.a.studio.as_ref().unwrap().made;
        assert_eq!([pair.b.verifier.audio().received, pair.b.verifier.video().received], made);
        assert_eq!((pair.a.closed, pair.b.closed), (None, None));
        assert_eq!(*announced == old, number < 100);
        let again = pair.b.peer.handle_offer(pair.clock.now(), &read(offer), |_, _| None).unwrap();
        assert_eq!(print(&again), *announced);
    }
}
