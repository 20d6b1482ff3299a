//! A pull and a camera on a line without sockets.

use ::rtsp::{Event as Asked, Server};

use super::*;
use crate::auth::url::Url;
use crate::config::AppSettings;
use crate::protocol::{OpenPath, schema};

const CAMERA: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
/// Description of a stream with VP8 and G.711, and with a section of metadata before them that is not supported.
const DESCRIPTION: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
    m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\na=control:trackID=0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\na=control:trackID=1\r\n\
    m=audio 0 RTP/AVP 0\r\na=control:trackID=2\r\n";

/// A camera, and the client that pulls from it.
struct Rig {
    now: Instant,
    pull: RtspPull,
    camera: Server,
    login: Option<(&'static str, &'static str)>,
    takes: Vec<Lower>,
    /// The transports that the camera was asked for.
    setups: Vec<Transport>,
    events: Vec<ClientEvent>,
    /// The next port that a socket is opened at.
    port: u16,
}

impl Rig {
    fn new(url: &str) -> Self {
        let now = Instant::now();
        let parsed = Url::parse(url).unwrap();
        let patience = Patience::PULL;
        let pull = RtspPull::new(&RtspUrl::read(&parsed, 554).unwrap(), patience, Seed::from_number(1));
        let camera = Server::new(now, Arc::default(), Seed::from_number(2));
        let takes = vec![Lower::Tcp, Lower::Udp];
        let (setups, events) = (Vec::new(), Vec::new());
        Self { now, pull, camera, login: None, takes, setups, events, port: 40_000 }
    }

    /// Runs the camera and the client until neither has anything to send.
    fn begin(&mut self, settings: &[(&str, &str)]) {
        let app = AppSettings::of(schema(), "live", settings).unwrap();
        let server = crate::mail::SessionSettings::default();
        let address = Some(SocketAddr::new(CAMERA, 554));
        self.pull.begin(&Start { via: &[], now: self.now, address, server: &server, app: Some(&app) });
        self.run();
    }

    fn run(&mut self) {
        for _ in 0..100 {
            let mut out = SendQueue::new();
            self.pull.poll_transmit(&mut out);
            let _ = self.camera.handle_bytes(self.now, &out.take_all());
            self.answer();
            self.camera.poll_transmit(&mut out);
            self.pull.handle_bytes(self.now, &out.take_all());
            while let Some(event) = self.pull.poll() {
                if let ClientEvent::OpenPath(OpenPath { path, bind, to }) = event {
                    assert_eq!(to, None);
                    let port = Some(bind.unwrap().port()).filter(|port| *port > 0).unwrap_or(self.port);
                    self.port = port + 1;
                    self.pull.handle_local(self.now, path, Some(SocketAddr::new(CAMERA, port)));
                } else {
                    self.events.push(event);
                }
            }
        }
    }

    fn answer(&mut self) {
        let now = self.now;
        while let Some(asked) = self.camera.poll_event() {
            match asked {
                Asked::Describe(_) => {
                    let is_known = self.login.is_none_or(|(user, password)| {
                        self.camera.verify(now, user, password) == ::rtsp::auth::Verdict::Accepted
                    });
                    match is_known {
                        true => self.camera.accept_describe(now, DESCRIPTION),
                        false => self.camera.challenge(now),
                    }
                }
                Asked::Setup(request) => {
                    self.setups.push(request.transports[0].clone());
                    match request.transports.into_iter().find(|one| self.takes.contains(&one.lower)) {
                        Some(transport) => {
                            let server_ports =
                                Ports::from_rtp(6970 + 2 * u16::try_from(request.track).unwrap())
                                    .filter(|_| transport.lower == Lower::Udp);
                            self.camera.accept_setup(now, Transport { server_ports, ..transport });
                        }
                        None => self.camera.reject(now, Status::UNSUPPORTED_TRANSPORT),
                    }
                }
                Asked::Play => self.camera.accept_play(now, &[]),
                Asked::Announce(_)
                | Asked::Record
                | Asked::Pause
                | Asked::Teardown
                | Asked::Interleaved(_)
                | Asked::Closed(_) => {}
            }
        }
    }

    fn grant(&mut self) {
        let grant = crate::protocol::publisher::grant();
        self.pull.handle_grant(self.now, &grant);
    }

    /// Returns the client's events, without those that ask the camera for something.
    fn told(&mut self) -> Vec<ClientEvent> {
        self.events.extend(std::iter::from_fn(|| self.pull.poll()));
        std::mem::take(&mut self.events)
    }

    fn units(&mut self) -> usize {
        self.told().iter().filter(|event| matches!(event, ClientEvent::Unit { .. })).count()
    }
}

/// A picture of 16 x 16 pixels, all of it in one packet.
fn picture(sequence: u16) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    let head = [0x80, 0x80 | 96, high, low, 0, 0, high, low, 0, 0, 0, 7];
    // RFC 7741 §4.2: the start of partition 0. RFC 6386 §9.1: a key frame.
    [&head[..], &[0x10], &[0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 16, 0, 16, 0, 1, 2, 3]].concat()
}

fn sound(sequence: u16) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    [&[0x80, 0, high, low, 0, 0, high, low, 0, 0, 0, 9][..], &[0xff; 160]].concat()
}

#[test]
fn what_cannot_be_carried_is_left_out_and_the_rest_comes_in_the_connection() {
    let mut rig = Rig::new("rtsp://h/cam");
    rig.begin(&[]);
    assert!(rig.setups.len() == 2 && rig.setups.iter().all(|one| one.lower == Lower::Tcp));
    assert_eq!(rig.told(), [ClientEvent::Accepted]);
    for n in 0..3 {
        rig.camera.send_frame(1, false, picture(n).into());
        rig.camera.send_frame(2, false, sound(n).into());
    }
    rig.run();
    assert_eq!(rig.told(), [ClientEvent::Begun], "units follow the grant");
    rig.grant();
    assert_eq!(rig.units(), 6, "and none is lost meanwhile");
}

#[test]
fn p_11_datagrams_of_others_are_dropped() {
    let mut rig = Rig::new("rtsp://h/cam?udp");
    rig.begin(&[]);
    assert!(rig.setups.len() == 2 && rig.setups.iter().all(|one| one.lower == Lower::Udp));
    assert_eq!(rig.setups[0].client_ports, Ports::from_rtp(40_000));
    assert_eq!(rig.told(), [ClientEvent::Accepted]);
    // A datagram goes to each port of the camera, so that a NAT on the way lets its packets in.
    let mut reached = Vec::new();
    loop {
        let mut out = Datagrams::new();
        let to = rig.pull.poll_datagrams(rig.now, &mut out);
        let Some(remote) = to.remote else { break };
        assert!(out.len() == 1 && remote.peer.ip() == CAMERA);
        reached.push((to.path, remote.peer.port()));
    }
    let wanted = [(1, false, 6972), (1, true, 6973), (2, false, 6974), (2, true, 6975)];
    assert_eq!(reached, wanted.map(|(section, is_rtcp, port)| (path_of(section, is_rtcp), port)));

    let from = |address: IpAddr, port| SocketAddr::new(address, port);
    let elsewhere = IpAddr::from([198, 51, 100, 1]);
    let video = path_of(1, false);
    for bad in [from(elsewhere, 6972), from(CAMERA, 6973), from(CAMERA, 40_000)] {
        rig.pull.handle_datagram(rig.now, video, bad, &mut picture(0));
    }
    assert_eq!(rig.told(), [], "nobody knows of them");
    rig.pull.handle_datagram(rig.now, video, from(CAMERA, 6972), &mut picture(1));
    rig.pull.handle_datagram(rig.now, path_of(2, false), from(CAMERA, 6974), &mut sound(1));
    assert_eq!(rig.told(), [ClientEvent::Begun]);
    rig.grant();
    assert_eq!(rig.units(), 2);
    // Another source sends from the camera's own port, and a goodbye (BYE) names the first source.
    let mut other = picture(2);
    other[11] = 8;
    rig.pull.handle_datagram(rig.now, video, from(CAMERA, 6972), &mut other);
    let bye = [0x81, 203, 0, 1, 0, 0, 0, 7];
    rig.pull.handle_datagram(rig.now, path_of(1, true), from(CAMERA, 6973), &mut bye.to_vec());
    assert_eq!(rig.units(), 0);
    rig.pull.handle_datagram(rig.now, video, from(CAMERA, 6972), &mut picture(2));
    assert_eq!(rig.units(), 1, "the stream goes on");
}

#[test]
fn a_camera_that_interleaves_nothing_is_asked_for_datagrams_unless_those_are_not_wanted() {
    for (settings, wanted) in [(&[][..], true), (&[("rtspPullTransportType", "tcp")], false)] {
        let mut rig = Rig::new("rtsp://h/cam");
        rig.takes = vec![Lower::Udp];
        rig.begin(settings);
        let lower: Vec<Lower> = rig.setups.iter().map(|one| one.lower).collect();
        match wanted {
            true => assert_eq!(
                (lower, rig.told()),
                (vec![Lower::Tcp, Lower::Udp, Lower::Udp], vec![ClientEvent::Accepted])
            ),
            false => assert!(matches!(&rig.told()[..], [ClientEvent::Ended(why), ..] if why.contains("461"))),
        }
    }
}

#[test]
fn p_12_cameras_ask_who_is_there() {
    for (url, said) in [
        ("rtsp://admin:p%40ss@h/cam", None),
        ("rtsp://admin:wrong@h/cam", Some("RTSP 401 Unauthorized")),
        ("rtsp://h/cam", Some("RTSP 401 Unauthorized")),
    ] {
        let mut rig = Rig::new(url);
        rig.login = Some(("admin", "p@ss"));
        rig.begin(&[]);
        let expected = said.map_or(ClientEvent::Accepted, |why| ClientEvent::Ended(why.to_owned()));
        assert_eq!(rig.told()[0], expected, "{url}");
    }
}

#[test]
fn over_tls_no_datagrams_are_asked_for() {
    let mut rig = Rig::new("rtsps://h/cam?udp");
    rig.begin(&[("rtspPullTransportType", "1")]);
    assert!(rig.setups.len() == 2 && rig.setups.iter().all(|one| one.lower == Lower::Tcp));
}

#[test]
fn u_20_a_camera_that_sends_before_anybody_takes_it_is_held_up_to_a_bound() {
    let mut rig = Rig::new("rtsp://h/cam?udp");
    rig.begin(&[]);
    rig.told();
    let from = SocketAddr::new(CAMERA, 6972);
    for n in 0..5000 {
        rig.pull.handle_datagram(rig.now, path_of(1, false), from, &mut picture(n));
    }
    rig.grant();
    rig.pull.handle_timeout(rig.now + Duration::from_secs(3));
    assert_eq!(rig.units(), waiting::PACKETS_MAX);
}

/// A picture of another source.
fn picture_of(ssrc: u8, sequence: u16) -> Vec<u8> {
    let mut packet = picture(sequence);
    packet[11] = ssrc;
    packet
}

#[test]
fn a_source_that_goes_on_under_another_ssrc_is_followed() {
    let ms = Duration::from_millis;
    let mut rig = Rig::new("rtsp://h/cam");
    rig.begin(&[]);
    rig.grant();
    let send = |rig: &mut Rig, ssrc, sequence| {
        rig.now += ms(40);
        rig.camera.send_frame(1, false, picture_of(ssrc, sequence).into());
        rig.camera.send_frame(2, false, sound(sequence).into());
        rig.run();
    };
    // Two packets of another source between those of the first are dropped.
    for n in 0..10 {
        send(&mut rig, 7, n);
        send(&mut rig, 8, 500 + 2 * n);
        send(&mut rig, 8, 501 + 2 * n);
    }
    let videos = |events: &[ClientEvent]| {
        let of_video = |event: &ClientEvent| {
            let ClientEvent::Unit { unit, .. } = event else { return None };
            (unit.track == media::TrackId::VIDEO).then_some(unit.dts)
        };
        events.iter().filter_map(of_video).collect::<Vec<i64>>()
    };
    assert_eq!(videos(&rig.told()).len(), 10);
    // The source restarts with other times: its first packets wait, and none of them is lost.
    let mut times = Vec::new();
    for n in 0..30 {
        send(&mut rig, 9, 40_000 + n);
        let told = videos(&rig.told());
        assert_eq!(told.is_empty(), n < 10, "{n}");
        times.extend(told);
    }
    assert_eq!(times.len(), 30);
    assert!(times.is_sorted(), "{times:?}");
}
