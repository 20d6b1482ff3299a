//! Tests TURN: aiortc and Chromium that reach media ports only through relays (`turn.py`), and attacks that try to use
//! the relay for something else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use ice::stun::{AttributeType, Class, Message, MessageWriter, TransactionId};

use turn::{Credentials, method};

use crate::support::{Bystander, Server, ms, python, run, secs, wait_for};

const SECRET: &str = "the secret of this server";
const REALM: &str = "millstream";
const TRANSPORT: AttributeType = AttributeType(0x0019);
const LIFETIME: AttributeType = AttributeType(0x000d);
const PEER: AttributeType = AttributeType(0x0012);
const CHANNEL: AttributeType = AttributeType(0x000c);
const DATA: AttributeType = AttributeType(0x0013);
const RELAYED: AttributeType = AttributeType(0x0016);

fn server(more: &[&str]) -> Server {
    let secret = format!("turn.secret={SECRET}");
    let settings = [&["turn.enabled=true", &secret][..], more].concat();
    Server::start(&settings)
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/turn.py"));
    command.args(arguments);
    command
}

/// Returns the sum of a metric over all workers.
fn metric(server: &Server, name: &str, label: &str) -> f64 {
    let page = server.api().get("/metrics").body;
    let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn open_allocations(server: &Server) -> f64 {
    metric(server, "millstream_sessions", "protocol=\"turn\"")
}

// ---- clients of others

#[test]
fn aiortc_publishes_and_plays_through_relays_alone() {
    let server = server(&["server.workers=2"]);
    let [udp, tcp, _] = server.turn.map(Option::unwrap);
    let whip = format!("http://{}/live/whip/t", server.http);
    let whep = format!("http://{}/live/whep/t", server.http);
    let (by_udp, by_tcp) = (format!("turn:{udp}?transport=udp"), format!("turn:{tcp}?transport=tcp"));
    let mut publish = script(&["aiortc-publish", &whip, &by_udp, SECRET]);
    let publisher =
        publish.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the stream", secs(40), || crate::publish_play::is_broadcasting(&server, "t"));
    for way in [&by_udp, &by_tcp] {
        let (status, said, told) = run(&mut script(&["aiortc-play", &whep, way, SECRET]));
        assert!(status.success() && said.trim() == "ok", "{way}: {said}{told}");
    }
    // The publisher exits when its standard input is closed.
    let ended = publisher.wait_with_output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.trim() == "ok", "{said}{told}");
    server.wait_for_line("TURN allocation started");
    wait_for("the end of all allocations", secs(20), || open_allocations(&server) == 0.0);
    for what in ["what=\"bytes_to_peers\"", "what=\"bytes_to_clients\""] {
        assert!(metric(&server, "millstream_turn_events_total", what) > 1000.0, "{what}");
    }
}

fn browsers(transport: &str, more: &[&str]) {
    let server = server(&[&["server.workers=2"], more].concat());
    let url = format!("http://{}/", server.http);
    let (status, said, told) = run(&mut script(&["chromium", &url, transport]));
    assert!(status.success() && said.trim() == "ok", "{transport}: {said}{told}\n{}", server.log());
}

#[test]
fn chromium_publishes_and_plays_through_relays_over_udp() {
    browsers("udp", &[]);
}

#[test]
fn chromium_publishes_and_plays_through_relays_over_tcp() {
    browsers("tcp", &[]);
}

#[test]
fn chromium_publishes_and_plays_through_relays_over_tls() {
    browsers("tls", &[]);
}

/// Checks TURN over TLS on the port of HTTPS, which is the only port that the clients get.
#[test]
fn chromium_publishes_and_plays_through_relays_at_the_port_of_https() {
    browsers("tls", &["http.shared_ports=true"]);
}

// ---- attacks

/// A connection to the TURN server.
enum Way {
    Udp(UdpSocket),
    Tcp(TcpStream, BytesMut),
}

impl Way {
    fn udp(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(to).unwrap();
        // After this time without an answer, a request is sent again.
        socket.set_read_timeout(Some(ms(500))).unwrap();
        Self::Udp(socket)
    }

    fn tcp(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(secs(10))).unwrap();
        Self::Tcp(stream, BytesMut::new())
    }

    fn send(&mut self, message: &[u8]) {
        match self {
            Self::Udp(socket) => drop(socket.send(message).unwrap()),
            Self::Tcp(stream, ..) => stream.write_all(message).unwrap(),
        }
    }

    /// Returns the next message. Over UDP, `None` means that nothing has arrived in time.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        match self {
            Self::Udp(socket) => socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()),
            Self::Tcp(stream, input) => loop {
                // Answers are consecutive STUN messages, which contain their lengths.
                let whole = input
                    .get(2..4)
                    .map(|length| 20 + usize::from(u16::from_be_bytes([length[0], length[1]])));
                if let Some(whole) = whole.filter(|whole| input.len() >= *whole) {
                    return Some(input.split_to(whole).to_vec());
                }
                let length = stream.read(&mut buffer).unwrap();
                assert!(length > 0, "the server has closed the connection");
                input.extend_from_slice(&buffer[..length]);
            },
        }
    }
}

/// A client that can send any request.
struct Client {
    way: Way,
    credentials: Credentials,
    nonce: Option<String>,
    ids: u8,
}

impl Client {
    fn new(way: Way, user: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let credentials = Credentials::ephemeral(SECRET.as_bytes(), now + 600, user);
        Self { way, credentials, nonce: None, ids: 0 }
    }

    fn request(
        &mut self,
        method: u16,
        attributes: &[(AttributeType, Vec<u8>)],
        peer: Option<&str>,
    ) -> Vec<u8> {
        self.ids += 1;
        let mut out = Vec::new();
        let id = TransactionId([self.ids; 12]);
        let mut writer = MessageWriter::of_method(&mut out, method, Class::Request, id);
        for (kind, value) in attributes {
            writer = writer.attribute(*kind, value);
        }
        if let Some(peer) = peer {
            writer = writer.xor_address(PEER, peer.parse().unwrap());
        }
        let Some(nonce) = &self.nonce else {
            writer.finish_open();
            return out;
        };
        let Credentials { username, password } = &self.credentials;
        let key = crypto::md5(&[format!("{username}:{REALM}:{password}").as_bytes()]);
        writer
            .attribute(AttributeType::USERNAME, username.as_bytes())
            .attribute(AttributeType::REALM, REALM.as_bytes())
            .attribute(AttributeType::NONCE, nonce.as_bytes())
            .finish(&key);
        out
    }

    fn ask(&mut self, method: u16, attributes: &[(AttributeType, Vec<u8>)], peer: Option<&str>) -> Vec<u8> {
        let request = self.request(method, attributes, peer);
        let id = |message: &[u8]| Message::read(message).unwrap().transaction_id();
        // The request is repeated, because a flood may have filled the port's buffer.
        for _ in 0..40 {
            self.way.send(&request);
            if let Some(answer) = self.way.receive().filter(|answer| id(answer) == id(&request)) {
                return answer;
            }
        }
        panic!("no answer");
    }

    fn allocate(&mut self) -> Option<u16> {
        let transport = [(TRANSPORT, vec![17, 0, 0, 0])];
        let challenge = self.ask(method::ALLOCATE, &transport, None);
        assert_eq!(code(&challenge), Some(401));
        self.nonce = Some(String::from_utf8(value(&challenge, AttributeType::NONCE).unwrap()).unwrap());
        let answer = self.ask(method::ALLOCATE, &transport, None);
        assert_eq!(value(&answer, RELAYED).is_some(), code(&answer).is_none());
        code(&answer)
    }

    /// Ends the client's allocation. The answer is 437 (mismatch) if it has already ended.
    fn end(&mut self) {
        let answer = self.ask(method::REFRESH, &[(LIFETIME, vec![0; 4])], None);
        assert!(matches!(code(&answer), None | Some(437)), "{answer:?}");
    }

    fn permit(&mut self, peer: &str) -> Option<u16> {
        code(&self.ask(method::CREATE_PERMISSION, &[], Some(peer)))
    }

    fn bind(&mut self, peer: &str) -> Option<u16> {
        code(&self.ask(method::CHANNEL_BIND, &[(CHANNEL, vec![0x40, 0, 0, 0])], Some(peer)))
    }
}

fn code(answer: &[u8]) -> Option<u16> {
    Message::read(answer).unwrap().error_code().map(|code| code.0)
}

fn value(answer: &[u8], kind: AttributeType) -> Option<Vec<u8>> {
    let message = Message::read(answer).unwrap();
    message.attributes().find(|of| of.kind == kind).map(|of| of.value.to_vec())
}

#[test]
fn v_03_nothing_but_media_ports_is_reached_over_udp_and_tcp() {
    let mut server = server(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let [udp, tcp, _] = server.turn.map(Option::unwrap);
    // This socket stands for another service of the machine, to which nothing must be relayed.
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let other_address = other.local_addr().unwrap().to_string();
    for way in [Way::udp(udp), Way::tcp(tcp)] {
        let mut client = Client::new(way, "u");
        assert_eq!(client.allocate(), None);
        for peer in ["10.0.0.1:80", "169.254.169.254:80", "192.168.0.1:50000", "127.0.0.2:1", "8.8.8.8:53"] {
            assert_eq!((client.permit(peer), client.bind(peer)), (Some(403), Some(403)), "{peer}");
            std::thread::sleep(ms(250));
        }
        // Media ports are at 127.0.0.1, so permissions for this address are accepted. Its other ports are still
        // refused.
        assert_eq!(client.bind(&other_address), Some(403));
        assert_eq!(client.bind(&server.http.to_string()), Some(403));
        assert_eq!(client.permit(&other_address), None);
        for _ in 0..10 {
            let mut message = Vec::new();
            MessageWriter::of_method(&mut message, method::SEND, Class::Indication, TransactionId([1; 12]))
                .xor_address(PEER, other.local_addr().unwrap())
                .attribute(DATA, b"let me in")
                .finish_open();
            client.way.send(&message);
        }
        // Messages are handled in order, so the answer shows that the earlier ones have been handled.
        assert_eq!(client.bind(&server.webrtc[0].to_string()), None);
        assert!(other.recv(&mut [0; 64]).is_err(), "something was relayed");
        // The media port drops datagrams that are no connectivity checks of a session, and answers nothing.
        client.way.send(&[0x40, 0, 0, 4, 1, 2, 3, 4]);
        client.end();
    }
    wait_for("the end of the allocations", secs(10), || open_allocations(&server) == 0.0);
    bystander.finish(&mut server);
}

#[test]
fn v_02_v_11_floods_of_the_turn_port_harm_nobody() {
    let mut server = server(&["server.workers=2"]);
    let bystander = Bystander::start(&server);
    let [udp, ..] = server.turn.map(Option::unwrap);
    let sockets: Vec<UdpSocket> = (0..32).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    sockets.iter().for_each(|socket| socket.connect(udp).unwrap());
    let mut client = Client::new(Way::udp(udp), "u");
    let open = client.request(method::ALLOCATE, &[(TRANSPORT, vec![17, 0, 0, 0])], None);
    client.nonce = Some("0000000000000000000000000".to_owned());
    let forged = client.request(method::ALLOCATE, &[(TRANSPORT, vec![17, 0, 0, 0])], None);
    let garbage: [&[u8]; 4] =
        [&[0x40, 0, 0xff, 0xff, 1], &[0; 20], &[0xff; 1200], &forged[..forged.len() - 4]];
    for round in 0..3000 {
        for socket in &sockets {
            let message = match round % 3 {
                0 => &open,
                1 => &forged,
                _ => garbage[round % 4],
            };
            let _ = socket.send(message);
        }
    }
    assert_eq!(open_allocations(&server), 0.0);
    client.nonce = None;
    assert_eq!(client.allocate(), None, "a client is served as ever");
    client.end();
    bystander.finish(&mut server);
}

#[test]
fn v_10_a_client_that_vanishes_leaves_nothing() {
    let mut server = server(&["turn.allocations=8", "server.workers=1"]);
    let bystander = Bystander::start(&server);
    let [_, tcp, _] = server.turn.map(Option::unwrap);
    for round in 0..3 {
        let mut clients: Vec<Client> =
            (0..10).map(|n| Client::new(Way::tcp(tcp), &format!("{round}-{n}"))).collect();
        let codes: Vec<_> = clients.iter_mut().map(Client::allocate).collect();
        assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 8, "{codes:?}");
        assert_eq!(codes[8..], [Some(508), Some(508)]);
        assert_eq!(open_allocations(&server), 8.0);
        // The connections break without an end of the allocations.
        drop(clients);
        wait_for("the end of the allocations", secs(10), || open_allocations(&server) == 0.0);
    }
    bystander.finish(&mut server);
}

#[test]
fn v_12_streams_of_others_and_slow_ones_are_closed() {
    let mut server = server(&["server.workers=1"]);
    let bystander = Bystander::start(&server);
    let [_, tcp, _] = server.turn.map(Option::unwrap);
    let is_closed = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(secs(20))).unwrap();
        let end = stream.read(&mut [0; 64]);
        matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let open = Client::new(Way::tcp(tcp), "u").request(method::REFRESH, &[], None);
    let lies: [(&str, &[u8]); 5] = [
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        ("a TLS hello", &[22, 3, 1, 2, 0, 1]),
        ("ChannelData first", &[0x40, 0, 0, 0]),
        ("a request of 65 kB", &[0, 3, 0xff, 0xfc]),
        ("an odd length", &[0, 3, 0, 3]),
    ];
    for (what, bytes) in lies {
        let mut stream = TcpStream::connect(tcp).unwrap();
        stream.write_all(bytes).unwrap();
        assert!(is_closed(&mut stream), "{what}");
    }
    // Connections that send incomplete messages, a byte at a time, are closed at their deadline.
    let mut slow: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(tcp).unwrap()).collect();
    for (n, stream) in slow.iter_mut().enumerate() {
        stream.write_all(&open[..1 + n % (open.len() - 1)]).unwrap();
    }
    assert!(slow.iter_mut().all(is_closed));
    // A hundred clients that get an answer and then send nothing more are closed as well.
    let mut polite: Vec<Client> = (0..100).map(|_| Client::new(Way::tcp(tcp), "u")).collect();
    for client in &mut polite {
        assert_eq!(code(&client.ask(method::REFRESH, &[], None)), Some(401));
    }
    for client in &mut polite {
        let Way::Tcp(stream, ..) = &mut client.way else { panic!() };
        assert!(is_closed(stream));
    }
    bystander.finish(&mut server);
}
