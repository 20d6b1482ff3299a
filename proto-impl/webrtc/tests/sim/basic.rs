//! Simulations of the normal operation of a session.

use std::sync::Arc;

use media::codec::{Codec, CodecConfig, opus};
use netsim::{Clock, Pair, Peer as _, ms, secs};
use rtp::extension::{AudioLevel, PlayoutDelay};
use sdp::Direction;
use webrtc::{CloseReason, Config, Event, MediaPreference, SectionId, Track};
use wire::Datagrams;

use crate::harness::{
    AUDIO, CLIENT, End, SERVER, Studio, VIDEO, both_connected, client_config, exchange, preferences,
    server_config, session, session_of,
};

#[test]
fn what_is_published_comes_whole_and_in_order() {
    let mut pair = session(1, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(5), 1));
    pair.run_for(secs(6)).unwrap();
    let (video, audio) = (pair.b.verifier.video(), pair.b.verifier.audio());
    let made = pair.a.studio.as_ref().unwrap().made;
    assert_eq!([audio.received, video.received], made);
    assert_eq!(
        (audio.lost + video.lost, audio.reordered + video.reordered, pair.b.verifier.corrupt()),
        (0, 0, 0)
    );
    assert!(pair.b.came.iter().any(|frame| frame.key_frame));
    let stats = pair.b.peer.stats();
    assert_eq!((stats.malformed, stats.unknown_sources), (0, 0));
    assert_eq!(stats.profile, Some(srtp::Profile::AeadAes128Gcm));
    // The measured round trip is that of the path.
    assert!(pair.a.peer.stats().round_trip.is_some_and(|time| time.abs_diff(ms(40)) <= ms(2)));
}

#[test]
fn what_is_played_comes_whole_and_in_order() {
    let mut pair = session(2, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(5), 2));
    pair.run_for(secs(6)).unwrap();
    assert!(pair.b.peer.has_nothing_to_send(), "its owner need not ask");
    let made = pair.b.studio.as_ref().unwrap().made;
    assert_eq!([pair.a.verifier.audio().received, pair.a.verifier.video().received], made);
    assert_eq!(pair.b.peer.stats().skipped, 0);
}

#[test]
fn a_publisher_tells_the_level_of_its_audio_if_it_may() {
    for may in [true, false] {
        let client = Config { audio_levels: may, ..client_config() };
        let clock = Clock::new();
        let mut client = End::new(&clock, client, CLIENT, SERVER, 12);
        let mut server = End::new(&clock, server_config(), SERVER, CLIENT, 12);
        client.peer.add_local(clock.now(), CLIENT).unwrap();
        let mut sections = preferences(Direction::SendOnly);
        sections[0].1.formats[0].feedback.clear();
        let offer = client.peer.offer(&sections).unwrap();
        let answer = server.peer.handle_offer(clock.now(), &offer, |id, _| {
            let (_, preference) = &sections[usize::from(id.0)];
            Some(MediaPreference { direction: Direction::RecvOnly, ..preference.clone() })
        });
        client.peer.handle_answer(clock.now(), &answer.unwrap()).unwrap();
        let mut pair = Pair::new(12, clock, client, server).links(|link| link.latency(ms(20)));
        pair.run_until(secs(5), both_connected).unwrap();
        pair.a.studio = Some(Studio::new(pair.clock.now(), secs(8), 12));
        let heard = [(true, 20), (false, 127)].map(|(voice, level)| {
            pair.a.peer.set_audio_level(AUDIO, AudioLevel { voice, level });
            pair.a.peer.set_audio_level(VIDEO, AudioLevel { voice, level });
            pair.run_for(secs(4)).unwrap();
            let level = |event: &Event| match event {
                Event::AudioLevel { section: AUDIO, level } => Some(*level),
                _ => None,
            };
            pair.b.data.iter().rev().find_map(level)
        });
        assert!(
            if may { heard[0] == Some(20) && heard[1] > Some(70) } else { heard == [None; 2] },
            "{heard:?}"
        );
        assert_eq!(pair.b.verifier.audio().lost, 0);
    }
}

#[test]
fn lips_stay_in_step() {
    let mut pair = session(3, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(4), 3));
    pair.run_for(secs(5)).unwrap();
    let at = |section, timestamp: u32, rate: u32| {
        let frame = pair.b.came.iter().rev().find(|frame| frame.section == section).unwrap();
        let behind = (timestamp.wrapping_sub(frame.timestamp) / rate).into();
        (frame.sampled.unwrap(), behind)
    };
    let (video, _): (_, u64) = at(VIDEO, 0, 90);
    let (audio, _): (_, u64) = at(AUDIO, 0, 48);
    let apart = video.since(audio).or_else(|| audio.since(video)).unwrap();
    // The last audio and video frames are less than a frame apart.
    assert!(apart < ms(40), "{apart:?}");
}

#[test]
fn a_goodbye_is_heard() {
    let mut pair = session(4, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    pair.a.close(now);
    pair.run_until(secs(1), |_, b| b.closed.is_some()).unwrap();
    assert_eq!((pair.a.closed, pair.b.closed), (Some(CloseReason::Local), Some(CloseReason::Peer)));
    assert_eq!(pair.b.peer.poll_timeout(), None);
    // After the end, the figures are still available.
    let stats = pair.b.peer.stats();
    assert!(stats.profile.is_some() && stats.handshake.is_some() && stats.transport.srtp.is_some());
}

/// Checks that a viewer learns of the end of its sources before the session ends, so that its page need not
/// wait for a timeout.
#[test]
fn sources_say_goodbye_before_their_session_does() {
    let mut pair = session(4, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(1), 4));
    pair.run_for(secs(2)).unwrap();
    let known = pair.a.peer.stats().received.len();
    assert_eq!(known, 2);
    pair.b.wire = Some(Vec::new());
    let now = pair.clock.now();
    pair.b.close(now);
    // Three datagrams are left to send: RTCP with the end of the sources, then the alert of DTLS
    // (RFC 7983), sent twice.
    let mut last = Vec::new();
    while let Some(datagram) = pair.b.poll_transmit(now) {
        last.push(datagram);
    }
    assert!(last.len() == 3 && last[0][0] >> 6 == 2 && (20..=63).contains(&last[1][0]), "{last:02x?}");
    assert_eq!(last[1], last[2]);
    let path = pair.a.path();
    pair.a.peer.handle_datagram(now, path, &mut last[0].to_vec());
    assert_eq!((pair.a.peer.stats().received.len(), pair.a.closed), (0, None), "its sources are no more");
    pair.a.peer.handle_datagram(now, path, &mut last[1].to_vec());
    assert!(matches!(pair.a.peer.poll_event(), Some(Event::Closed(CloseReason::Peer))));
}

#[test]
fn i_06_a_peer_that_falls_silent_is_let_go() {
    let mut pair = session(5, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let (now, far) = (pair.clock.now(), pair.clock.now() + secs(3600));
    pair.a_to_b = std::mem::replace(&mut pair.a_to_b, netsim::Link::new(&crypto::Seed::from_number(1)))
        .blackout(now, far);
    let took = pair.run_until(secs(60), |_, b| b.closed.is_some()).unwrap();
    assert_eq!(pair.b.closed, Some(CloseReason::ConsentExpired));
    assert!(took <= secs(36), "{took:?}");
    // Nothing is sent any more.
    let sent = pair.b.sent;
    pair.run_for(secs(5)).unwrap();
    assert_eq!(pair.b.sent, sent);
}

#[test]
fn nobody_answers() {
    let mut pair = session(6, Direction::SendOnly);
    let (now, far) = (pair.clock.now(), pair.clock.now() + secs(3600));
    pair = pair.links(|link| link.blackout(now, far));
    pair.run_until(secs(20), |a, b| a.closed.is_some() && b.closed.is_some()).unwrap();
    assert_eq!(
        (pair.a.closed, pair.b.closed),
        (Some(CloseReason::ConnectTimeout), Some(CloseReason::ConnectTimeout))
    );
}

#[test]
fn a_key_frame_that_is_asked_for_is_told_to_the_owner() {
    let mut pair = session(7, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(10), 7));
    pair.run_for(secs(1)).unwrap();
    for _ in 0..100 {
        let now = pair.clock.now();
        assert!(pair.a.peer.request_key_frame(now, VIDEO, 0));
        assert!(!pair.a.peer.request_key_frame(now, AUDIO, 0));
        pair.run_for(ms(20)).unwrap();
    }
    // two seconds, with at most two requests in each.
    assert!((3..=5).contains(&pair.b.key_frames_wanted), "{}", pair.b.key_frames_wanted);
}

#[test]
fn an_idle_session_is_small() {
    let mut pair = session(8, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    for section in pair.b.peer.sections().to_vec() {
        assert!(pair.b.peer.settle(now, section.id, section.formats[0].payload_type()));
    }
    pair.b.studio = Some(Studio::new(now, secs(3), 8));
    pair.run_for(secs(5)).unwrap();
    let held = pair.b.peer.held_bytes();
    println!("a viewer holds {held} bytes, at most {} in its life", pair.b.held_most);
    assert!(held < 16 << 10, "{held}");
    // Of all formats, the sender only keeps the one that its owner has settled on.
    assert!(pair.b.peer.sections().iter().all(|section| section.formats.len() == 1));
    assert!(pair.a.peer.sections().iter().any(|section| section.formats.len() > 1));
    assert!(pair.b.held_most < 80 << 10);
}

/// Checks that an answer that arrives after its session was closed starts nothing.
#[test]
fn an_answer_behind_the_end_begins_nothing() {
    let clock = Clock::new();
    let mut client = End::new(&clock, client_config(), CLIENT, SERVER, 1);
    let mut server = End::new(&clock, server_config(), SERVER, CLIENT, 1);
    let now = clock.now();
    client.peer.add_local(now, CLIENT).unwrap();
    let offer = client.peer.offer(&preferences(Direction::SendOnly)).unwrap();
    let preference = |section: SectionId, _: &sdp::Media| {
        let [audio, video] = preferences(Direction::RecvOnly);
        Some(if section == AUDIO { audio.1 } else { video.1 })
    };
    let answer = server.peer.handle_offer(now, &offer, preference).unwrap();
    client.close(now);
    assert_eq!(client.peer.handle_answer(now, &answer), Err(webrtc::Error::State));
    assert_eq!((client.peer.poll_event(), client.peer.poll_timeout()), (None, None));
    assert!(client.peer.sections().is_empty());
}

/// Checks that packets waiting for a removed track cause no wake-ups.
#[test]
fn what_waits_for_a_track_that_is_gone_wakes_nobody() {
    let mut pair = session(7, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    let mut track = Track::new(Codec::Opus, 1100).unwrap();
    let config = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    for n in 0..300 {
        let unit = track.push(now, &config, false, n * 960, &[7; 1000]).unwrap();
        assert!(pair.b.peer.send(VIDEO, &unit, now));
    }
    let mut out = Datagrams::new();
    let mut sent = 0;
    while pair.b.peer.poll_transmit(now, |_| Some(track.log()), &mut out).is_some() {
        sent += out.len();
        out.clear();
    }
    assert!(sent < 300, "the pacer holds some back");
    for _ in 0..20 {
        let Some(at) = pair.b.peer.poll_timeout() else { return };
        pair.b.peer.handle_timeout(at);
        while pair.b.peer.poll_transmit(at, |_| None, &mut out).is_some() {
            out.clear();
        }
        assert!(pair.b.peer.poll_timeout().is_none_or(|next| next > at));
    }
}

/// Checks that a repeated offer has the same answer, and that an offer with other credentials restarts ICE while media
/// continues.
#[test]
fn a_later_offer_may_restart_ice() {
    let clock = Clock::new();
    let mut client = End::new(&clock, client_config(), CLIENT, SERVER, 9);
    let mut server = End::new(&clock, server_config(), SERVER, CLIENT, 9);
    let offer = exchange(&clock, &mut client, &mut server, Direction::SendOnly);
    let mut pair = Pair::new(9, clock, client, server).links(|link| link.latency(ms(20)));
    pair.run_until(secs(5), both_connected).unwrap();
    let before = pair.b.peer.local_fragment().to_owned();
    let (now, read) = (pair.clock.now(), |text: &str| sdp::Description::read(text.as_bytes()).unwrap());
    let again = pair.b.peer.handle_offer(now, &read(&offer), |_, _| None).unwrap();
    assert_eq!(again.media[0].attributes.ice_ufrag(), Some(before.as_str()));
    let fragment = read(&offer).media[0].attributes.ice_ufrag().unwrap().to_owned();
    let restarted =
        pair.b.peer.handle_offer(now, &read(&offer.replace(&fragment, "another1")), |_, _| None).unwrap();
    assert_ne!(restarted.media[0].attributes.ice_ufrag(), Some(before.as_str()));
    assert_eq!(restarted.media[0].attributes.ice_ufrag(), Some(pair.b.peer.local_fragment()));
    assert!(restarted.origin.version > again.origin.version);
    // The old credentials remain valid until the new ones are used.
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(20), 9));
    pair.run_for(secs(21)).unwrap();
    assert_eq!((pair.a.closed, pair.b.closed), (None, None));
    assert_eq!(pair.b.verifier.video().lost, 0);
    // Another certificate, or other sections, would need another session.
    let other = offer.replace("m=audio", "m=video");
    assert!(pair.b.peer.handle_offer(pair.clock.now(), &read(&other), |_, _| None).is_err());
}

/// Checks that two peers use DTLS 1.3, or 1.2 if one of them does not support 1.3. With 1.3, the side that
/// starts the handshake is ready a round trip earlier.
#[test]
fn peers_speak_the_newest_dtls_that_both_have() {
    let ready = |client, server| {
        let speaks = |config: Config, versions| {
            let dtls = Arc::new(dtls::Config { versions, ..(*config.dtls).clone() });
            Config { dtls, ..config }
        };
        let (client, server) = (speaks(client_config(), client), speaks(server_config(), server));
        let mut pair = session_of(4, Direction::RecvOnly, client, server);
        let took = pair.run_until(secs(5), |a, _| a.connected).unwrap();
        let (role, suite) = pair.a.peer.stats().handshake.unwrap();
        assert_eq!(role, dtls::Role::Client);
        (took, dtls::CipherSuite::V13.contains(&suite))
    };
    use dtls::Versions::{Both, Only12};
    let (older, newer) = (ready(Only12, Only12), ready(Both, Both));
    assert_eq!((older.1, newer.1), (false, true));
    assert_eq!(older.0, newer.0 + ms(40), "a round trip");
    assert_eq!((ready(Both, Only12), ready(Only12, Both)), (older, older));
}

/// Checks that a delay requested during the session reaches a video player despite losses, and that a
/// configured one has priority.
#[test]
fn a_playout_delay_can_be_requested_on_the_way() {
    let of = |max| PlayoutDelay { min: ms(0), max: ms(max) };
    for (configured, expected) in
        [(None, [None, Some(of(500)), Some(of(10_000))]), (Some(of(70)), [Some(of(70)); 3])]
    {
        let config = Config { playout_delay: configured, ..server_config() };
        let mut pair = session_of(6, Direction::RecvOnly, client_config(), config);
        pair.run_until(secs(5), both_connected).unwrap();
        pair.b.studio = Some(Studio::new(pair.clock.now(), secs(12), 6));
        let mut seen = Vec::new();
        for request in [None, Some(of(500)), Some(of(10_000))] {
            if let Some(delay) = request {
                pair.b.peer.request_playout_delay(AUDIO, delay);
                pair.b.peer.request_playout_delay(VIDEO, delay);
            }
            pair.run_for(secs(3)).unwrap();
            assert_eq!(pair.b.peer.requested_playout_delay(AUDIO), None);
            assert_eq!(pair.b.peer.requested_playout_delay(VIDEO), request.filter(|_| configured.is_none()));
            seen.push(pair.a.peer.playout_delay());
        }
        assert_eq!(seen, expected, "{configured:?}");
    }
}

/// Checks that a session ends immediately even if the peer misses any one of the last datagrams.
#[test]
fn a_goodbye_is_heard_though_a_datagram_of_it_is_lost() {
    for lost in 0..3 {
        let mut pair = session(7, Direction::RecvOnly);
        pair.run_until(secs(5), both_connected).unwrap();
        let now = pair.clock.now();
        pair.b.peer.close(now);
        let mut sent = Vec::new();
        let mut out = Datagrams::new();
        while pair.b.peer.poll_transmit(now, |_| None, &mut out).is_some() {
            sent.extend((0..out.len()).map(|n| out.get(n).to_vec()));
            out.clear();
        }
        assert!(lost < sent.len(), "{}", sent.len());
        sent.remove(lost);
        let path = pair.a.path();
        for mut datagram in sent {
            pair.a.peer.handle_datagram(now, path, &mut datagram);
        }
        let closed = std::iter::from_fn(|| pair.a.peer.poll_event())
            .any(|event| matches!(event, Event::Closed(CloseReason::Peer)));
        assert!(closed, "without datagram {lost}");
    }
}
