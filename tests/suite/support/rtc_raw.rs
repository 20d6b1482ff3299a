//! A WebRTC client that has keys but follows no rules: it uses ICE, DTLS and SRTP directly, so that a test can
//! send any packet.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::{Agent, Kind, Path, classify};
use rtp::Ssrc;
use sdp::{Description, Direction};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use wire::Datagrams;

use super::rtc::{candidates_of, h264_section, offer_to, rtc_peer};
use super::{Over, Server, secs};

/// The client that the module describes.
pub struct RawRtc {
    socket: UdpSocket,
    path: Path,
    agent: Agent,
    dtls: dtls::Connection,
    keys: Option<(Inbound, Outbound)>,
    master: Option<MasterKey>,
    /// The server's sources, of media and of retransmissions.
    pub sources: Vec<Ssrc>,
    /// The received RTP packets, decrypted.
    pub came: Vec<Vec<u8>>,
}

impl RawRtc {
    /// Connects a player (`whep`) or a publisher (`whip`), until the keys are agreed on.
    pub fn connect(server: &Server, endpoint: &str, name: &str, number: u64) -> Self {
        let now = Instant::now();
        let seed = Seed::from_number(number).derive("raw", 0);
        let identity = Arc::new(dtls::Identity::self_signed(&seed).unwrap());
        let mut agent = Agent::new(now, Arc::default(), &seed);
        let direction = if endpoint == "whip" { Direction::SendOnly } else { Direction::RecvOnly };
        let offer = rtc_peer().offer(&h264_section(direction)).unwrap().write();
        let digest: Vec<String> =
            identity.fingerprint().digest().iter().map(|byte| format!("{byte:02X}")).collect();
        let line = |line: &str| match line.split_once(':').map_or(line, |(name, _)| name) {
            "a=ice-ufrag" => format!("a=ice-ufrag:{}\r\n", agent.local().ufrag()),
            "a=ice-pwd" => format!("a=ice-pwd:{}\r\n", agent.local().password()),
            "a=fingerprint" => format!("a=fingerprint:sha-256 {}\r\n", digest.join(":")),
            _ => format!("{line}\r\n"),
        };
        let offer: String = offer.lines().map(line).collect();
        let reply = offer_to(server, &format!("/live/{endpoint}/{name}"), &offer);
        assert_eq!(reply.status, 201, "{}", reply.body);
        let (text, port) = candidates_of(&reply.body, Over::Udp);
        let answer = Description::read(text.as_bytes()).unwrap();
        let media = &answer.media[0];
        let of = answer.transport(media);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let local = socket.local_addr().unwrap();
        agent.set_remote(now, ice::Credentials::new(of.ufrag.unwrap(), of.pwd.unwrap()).unwrap(), true);
        agent.add_local(now, local).unwrap();
        agent.add_remote(now, &ice::Candidate::host(ice::Transport::Udp, port, 65_535)).unwrap();
        let config = dtls::Config { identity: Some(identity), ..dtls::Config::default() };
        let mut dtls = dtls::Connection::client(Arc::new(config), seed.derive("dtls", 0));
        let print = &of.fingerprints[0];
        let expected = dtls::Fingerprint::new(print.hash().name(), print.value()).unwrap();
        dtls.set_remote_fingerprints(now, vec![expected]);
        let mut sources: Vec<Ssrc> = media.attributes.ssrcs().map(|line| Ssrc(line.ssrc)).collect();
        sources.dedup();
        let path = Path::udp(local, port);
        let mut raw = Self { socket, path, agent, dtls, keys: None, master: None, sources, came: Vec::new() };
        let began = Instant::now();
        while raw.keys.is_none() {
            assert!(began.elapsed() < secs(10), "no keys");
            raw.step();
        }
        raw
    }

    /// Runs a round: handles received data and timeouts, and sends what is due.
    pub fn step(&mut self) {
        let now = Instant::now();
        let mut buffer = [0; 2048];
        let mut any = false;
        while let Ok(count) = self.socket.recv(&mut buffer) {
            any = true;
            self.take(now, &mut buffer[..count]);
        }
        if !any {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.agent.handle_timeout(now);
        self.dtls.handle_timeout(now);
        while let Some(event) = self.agent.poll_event() {
            if event == ice::Event::Connected {
                self.dtls.start(now);
            }
        }
        while let Some(event) = self.dtls.poll_event() {
            if let dtls::Event::Connected(connected) = event {
                let (profile, keys) = connected.srtp.unwrap();
                let profile = Profile::from_id(profile.number()).unwrap();
                let (client, server) = MasterKey::of_dtls(profile, keys.as_bytes()).unwrap();
                self.keys = Some((Inbound::new(&server).unwrap(), Outbound::new(&client).unwrap()));
                self.master = Some(client);
            }
        }
        let mut out = Vec::new();
        while self.agent.poll_transmit(now, &mut out).is_some() {
            self.send(&out);
            out.clear();
        }
        let mut datagrams = Datagrams::new();
        while self.dtls.poll_transmit(now, &mut datagrams) {
            (0..datagrams.len()).for_each(|n| self.send(datagrams.get(n)));
            datagrams.clear();
        }
    }

    fn take(&mut self, now: Instant, datagram: &mut [u8]) {
        match classify(datagram) {
            Kind::Stun => self.agent.handle_datagram(now, self.path, datagram),
            Kind::Dtls => self.dtls.handle_datagram(now, datagram),
            Kind::Rtp if !rtp::is_rtcp(datagram) => {
                let Some((inbound, _)) = &mut self.keys else { return };
                if let Ok(length) = inbound.unprotect(datagram) {
                    self.came.push(datagram[..length].to_vec());
                }
            }
            Kind::Rtp | Kind::Other => {}
        }
    }

    fn send(&self, datagram: &[u8]) {
        let to: SocketAddr = self.path.remote;
        let _ = self.socket.send_to(datagram, to);
    }

    /// Seals an RTCP packet and sends it.
    pub fn send_rtcp(&mut self, mut packet: Vec<u8>) {
        let Some((_, outbound)) = &mut self.keys else { return };
        outbound.protect_rtcp(&mut packet).unwrap();
        self.send(&packet);
    }

    /// Seals an RTP packet of a source that has not sent before, and sends it. An honest sender has few sources.
    pub fn send_rtp_of_another(&self, mut packet: Vec<u8>) {
        let mut outbound = Outbound::new(self.master.as_ref().unwrap()).unwrap();
        outbound.protect(&mut packet).unwrap();
        self.send(&packet);
    }
}
