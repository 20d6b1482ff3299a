//! Checks the SRTP keys with a client made of an ICE agent and a DTLS connection alone, because two peers of this crate
//! would also agree on a wrong order of the keys.

use crypto::Seed;
use ice::Path;
use netsim::{Clock, ms};
use rtp::{Csrcs, Header, Packet, PayloadType, SequenceNumber, Ssrc};
use sdp::{Description, Direction, Setup};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use webrtc::Config;
use wire::Datagrams;

use crate::harness::{AUDIO, CLIENT, End, SERVER, client_config, preferences, server_config};

/// An ICE agent and a DTLS connection, with nothing on top.
struct Client {
    clock: Clock,
    agent: ice::Agent,
    dtls: dtls::Connection,
    keys: Option<(dtls::SrtpProfile, dtls::SrtpKeys)>,
}

impl Client {
    /// Exchanges data between both ends until there is none left.
    fn run(&mut self, server: &mut End) {
        let mut out = Datagrams::new();
        loop {
            let now = self.clock.now();
            let mut bytes = Vec::new();
            let mut sent: Vec<Vec<u8>> = Vec::new();
            while let Some(transmit) = self.agent.poll_transmit(now, &mut bytes) {
                sent.push(bytes.split_off(bytes.len() - transmit.length));
            }
            while self.dtls.poll_transmit(now, &mut out) {
                sent.extend((0..out.len()).map(|n| out.get(n).to_vec()));
                out.clear();
            }
            for mut datagram in sent.clone() {
                server.peer.handle_datagram(now, Path::udp(SERVER, CLIENT), &mut datagram);
            }
            let answered = sent_by(server, &self.clock);
            for mut datagram in answered.clone() {
                if datagram[0] < 4 {
                    self.agent.handle_datagram(now, Path::udp(CLIENT, SERVER), &datagram);
                } else {
                    self.dtls.handle_datagram(now, &mut datagram);
                }
            }
            while let Some(event) = self.agent.poll_event() {
                if event == ice::Event::Connected {
                    self.dtls.start(now);
                }
            }
            while let Some(event) = self.dtls.poll_event() {
                let dtls::Event::Connected(connected) = event else { panic!("{event:?}") };
                self.keys = connected.srtp;
            }
            if sent.is_empty() && answered.is_empty() {
                return;
            }
        }
    }
}

fn sent_by(server: &mut End, clock: &Clock) -> Vec<Vec<u8>> {
    let mut out = Datagrams::new();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    while server.peer.poll_transmit(clock.now(), |_| None, &mut out).is_some() {
        sent.extend((0..out.len()).map(|n| out.get(n).to_vec()));
        out.clear();
    }
    sent
}

/// Connects a server to a client. The credentials in the client's offer are those of its ICE agent.
fn connected(dtls_client: bool) -> (Client, End) {
    let clock = Clock::new();
    let now = clock.now();
    let config = client_config();
    let mut agent = ice::Agent::new(now, std::sync::Arc::default(), &Seed::from_number(1));
    let mut other = End::new(&clock, config.clone(), CLIENT, SERVER, 1);
    let offer = other.peer.offer(&preferences(Direction::SendOnly)).unwrap().write();
    let own = Description::read(offer.as_bytes()).unwrap().media[0].attributes.clone();
    let offer = offer
        .replace(own.ice_ufrag().unwrap(), agent.local().ufrag())
        .replace(own.ice_pwd().unwrap(), agent.local().password());
    let server_config = Config { dtls_client, ..server_config() };
    let mut server = End::new(&clock, server_config, SERVER, CLIENT, 1);
    let offer = Description::read(offer.as_bytes()).unwrap();
    let [audio, video] = preferences(Direction::RecvOnly);
    let preference = |id, _: &_| Some(if id == AUDIO { audio.1.clone() } else { video.1.clone() });
    let answer = server.peer.handle_offer(now, &offer, preference).unwrap();
    let theirs = answer.transport(&answer.media[0]);
    let new =
        if theirs.setup == Some(Setup::Active) { dtls::Connection::server } else { dtls::Connection::client };
    let mut dtls = new(config.dtls, Seed::from_number(2));
    let prints = theirs.fingerprints.iter();
    let prints =
        prints.filter_map(|print| dtls::Fingerprint::new(print.hash().name(), print.value())).collect();
    dtls.set_remote_fingerprints(now, prints);
    let remote = ice::Credentials::new(theirs.ufrag.unwrap(), theirs.pwd.unwrap()).unwrap();
    agent.set_remote(now, remote, answer.is_ice_lite());
    agent.add_local(now, CLIENT).unwrap();
    agent.add_remote(now, &ice::Candidate::host(ice::Transport::Udp, SERVER, 65_535)).unwrap();
    let mut client = Client { clock, agent, dtls, keys: None };
    for _ in 0..100 {
        client.run(&mut server);
        client.clock.advance(ms(20));
        let now = client.clock.now();
        client.agent.handle_timeout(now);
        server.peer.handle_timeout(now);
        if client.keys.is_some() {
            return (client, server);
        }
    }
    panic!("not connected");
}

/// Checks the order of RFC 5764 §4.2: client key, server key, client salt, server salt. Data of the DTLS client
/// is protected with the client's key, whichever side made the offer.
#[test]
fn keys_are_in_the_order_of_rfc_5764() {
    for opens in [false, true] {
        let (client, mut server) = connected(opens);
        let (profile, keys) = client.keys.clone().unwrap();
        let bytes = keys.as_bytes();
        assert_eq!((profile, bytes.len()), (dtls::SrtpProfile::AeadAes128Gcm, 2 * (16 + 12)));
        let of_client = MasterKey::new(Profile::AeadAes128Gcm, &bytes[..16], &bytes[32..44]).unwrap();
        let of_server = MasterKey::new(Profile::AeadAes128Gcm, &bytes[16..32], &bytes[44..]).unwrap();
        let (ours, theirs) = if opens { (of_server, of_client) } else { (of_client, of_server) };

        let now = client.clock.now();
        let header = Header {
            marker: true,
            payload_type: PayloadType::new(111).unwrap(),
            sequence_number: SequenceNumber(1),
            timestamp: 960,
            ssrc: Ssrc(7),
            csrcs: Csrcs::default(),
            extension: None,
        };
        let mut clear = Vec::new();
        Packet { header, payload: &[1, 2, 3], padding: 0 }.write(&mut clear);
        let mut out = Datagrams::new();
        Outbound::new(&ours).unwrap().seal(&header, &[1, 2, 3], &mut out).unwrap();
        let path = Path::udp(SERVER, CLIENT);
        server.peer.handle_datagram(now, path, &mut out.get(0).to_vec());
        let srtp = server.peer.stats().transport.srtp.unwrap();
        assert_eq!((srtp.not_authentic, server.peer.stats().received.len()), (0, 1), "{opens}");

        // Decrypts the server's first report with the keys of that direction.
        let mut inbound = Inbound::new(&theirs).unwrap();
        let mut reports = 0;
        while reports == 0 {
            let at = server.peer.poll_timeout().unwrap();
            server.peer.handle_timeout(at);
            let mut sent = Datagrams::new();
            while server.peer.poll_transmit(at, |_| None, &mut sent).is_some() {
                for n in 0..sent.len() {
                    let mut datagram = sent.get(n).to_vec();
                    if datagram[0] >= 128 {
                        inbound.unprotect_rtcp(&mut datagram).unwrap();
                        reports += 1;
                    }
                }
                sent.clear();
            }
        }
    }
}
