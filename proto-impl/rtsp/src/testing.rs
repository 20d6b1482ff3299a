//! Test helpers: a start time, messages of clients and cameras, and a line between a client and a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use wire::SendQueue;

use crate::{Client, ClientEvent, Config, Event, Lower, Ports, RtpInfo, Server, Status, Transport};

/// An arbitrary start time. Clients and servers only use time differences.
pub(crate) fn start() -> Instant {
    #[allow(clippy::disallowed_methods, reason = "there is no other way to an Instant")]
    Instant::now()
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A server's description with two tracks.
pub(crate) const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
    a=control:*\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:trackID=0\r\n\
    m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/44100/2\r\na=control:trackID=1\r\n";

/// Description that ffmpeg announces.
pub(crate) const ANNOUNCED: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    a=tool:libavformat 59.27.100\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0LAHtkDxWhAAAADAEAAAAwDxYuS,aMuMsg==; profile-level-id=42C01E\r\n\
    a=control:streamid=0\r\nm=audio 0 RTP/AVP 97\r\nb=AS:128\r\na=rtpmap:97 MPEG4-GENERIC/44100/2\r\n\
    a=fmtp:97 profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3; config=1210\r\n\
    a=control:streamid=1\r\n";

/// A server and its owner, who decides about requests.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) now: Instant,
    pub(crate) events: Vec<Event>,
    /// Credentials that the owner requires; `None` if everyone is accepted.
    pub(crate) login: Option<(&'static str, &'static str)>,
    /// Transports that the owner accepts.
    pub(crate) takes: &'static [Lower],
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        let now = start();
        let server = Server::new(now, Arc::new(config), Seed::from_number(1));
        Self { server, now, events: Vec::new(), login: None, takes: &[Lower::Tcp, Lower::Udp] }
    }

    /// Passes bytes to the server, makes the owner's decisions, and returns the server's output.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> String {
        let _ = self.server.handle_bytes(self.now, bytes);
        self.decide();
        self.sent()
    }

    pub(crate) fn sent(&mut self) -> String {
        let mut out = SendQueue::new();
        self.server.poll_transmit(&mut out);
        String::from_utf8_lossy(&out.take_all()).into_owned()
    }

    pub(crate) fn decide(&mut self) {
        let now = self.now;
        while let Some(event) = self.server.poll_event() {
            match &event {
                Event::Describe(_) | Event::Announce(_) if !self.lets_in() => self.server.challenge(now),
                Event::Describe(_) => self.server.accept_describe(now, DESCRIPTION),
                Event::Announce(_) => self.server.accept_announce(now),
                Event::Setup(request) => {
                    let takes = |transport: &&Transport| self.takes.contains(&transport.lower);
                    match request.transports.iter().find(takes) {
                        Some(transport) => {
                            let server_ports =
                                if transport.lower == Lower::Udp { Ports::from_rtp(6970) } else { None };
                            let chosen = Transport { server_ports, ssrc: Some(7), ..transport.clone() };
                            self.server.accept_setup(now, chosen);
                        }
                        None => self.server.reject(now, Status::UNSUPPORTED_TRANSPORT),
                    }
                }
                Event::Play => {
                    let info = RtpInfo { track: 0, sequence: Some(5), rtp_time: Some(90_000) };
                    self.server.accept_play(now, &[info, RtpInfo { track: 1, ..RtpInfo::default() }]);
                }
                Event::Record => self.server.accept_record(now),
                Event::Pause | Event::Teardown | Event::Interleaved(_) | Event::Closed(_) => {}
            }
            self.events.push(event);
        }
    }

    fn lets_in(&mut self) -> bool {
        self.login.is_none_or(|(user, password)| {
            self.server.verify(self.now, user, password) == crate::auth::Verdict::Accepted
        })
    }

    pub(crate) fn closed(&self) -> Option<&crate::CloseReason> {
        match self.events.last() {
            Some(Event::Closed(reason)) => Some(reason),
            _ => None,
        }
    }
}

/// A line between a client and a server. It delivers the data in pieces.
pub(crate) struct Line {
    pub(crate) client: Client,
    pub(crate) rig: Rig,
    pub(crate) events: Vec<ClientEvent>,
    /// Tracks that the client's owner sets up after the description.
    pub(crate) wanted: Vec<crate::TrackSetup>,
    /// Tracks that the client's owner sets up if the server refuses to interleave.
    pub(crate) wanted_instead: Vec<crate::TrackSetup>,
    /// Everything the client has sent.
    pub(crate) asked: String,
    cut: usize,
}

impl Line {
    pub(crate) fn new(client: Client, rig: Rig, cut: usize) -> Self {
        let (wanted, wanted_instead) = (Vec::new(), Vec::new());
        Self { client, rig, events: Vec::new(), wanted, wanted_instead, asked: String::new(), cut }
    }

    /// Carries bytes in both directions until neither side sends any more.
    pub(crate) fn run(&mut self) {
        for _ in 0..100 {
            let mut out = SendQueue::new();
            let asked = self.client.poll_transmit(&mut out);
            let bytes = out.take_all();
            self.asked.push_str(&String::from_utf8_lossy(&bytes));
            for piece in bytes.chunks(self.cut) {
                let _ = self.rig.server.handle_bytes(self.rig.now, piece);
                self.rig.decide();
            }
            let mut out = SendQueue::new();
            let answered = self.rig.server.poll_transmit(&mut out);
            for piece in out.take_all().chunks(self.cut) {
                let _ = self.client.handle_bytes(self.rig.now, piece);
                self.drain();
            }
            self.drain();
            if !asked && !answered {
                return;
            }
        }
        panic!("they never come to rest");
    }

    fn drain(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if matches!(event, ClientEvent::Described(_)) {
                self.client.setup(self.rig.now, &self.wanted);
            }
            if event == ClientEvent::NotInterleaved {
                self.client.setup(self.rig.now, &self.wanted_instead);
            }
            self.events.push(event);
        }
    }
}
