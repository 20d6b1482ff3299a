//! The handshake of an SRT caller, made by hand, so that tests see the server's exact answer to the conclusion.
//!
//! The layouts are those of draft-sharabayko-srt-01, section 3.2.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::ms;

/// A control packet of type 0.
const HANDSHAKE: u16 = 0x8000;
const SHUTDOWN: u16 = 0x8005;
const KEEPALIVE: u16 = 0x8001;
const INDUCTION: u32 = 1;
const CONCLUSION: u32 = 0xffff_ffff;
/// Lowest request type of a refusal.
const REFUSED: u32 = 1000;
const OUR_SOCKET: u32 = 0x1234_5678;
/// Number of attempts, half a second each.
const TRIES: u32 = 20;

/// Parameters of a caller's conclusion.
#[derive(Debug, Clone, Copy)]
pub struct Knock<'a> {
    pub stream_id: &'a str,
    /// True to send an unknown key, as a caller with a wrong passphrase does.
    pub wrong_key: bool,
    /// Address to call from; loopback if `None`.
    pub from: Option<IpAddr>,
    /// Packet filter to ask for; empty for none.
    pub filter: &'a str,
}

impl<'a> Knock<'a> {
    pub const fn new(stream_id: &'a str) -> Self {
        Self { stream_id, wrong_key: false, from: None, filter: "" }
    }

    pub const fn with_wrong_key(stream_id: &'a str) -> Self {
        Self { wrong_key: true, ..Self::new(stream_id) }
    }

    pub const fn from(self, address: IpAddr) -> Self {
        Self { from: Some(address), ..self }
    }

    pub const fn filter(self, filter: &'a str) -> Self {
        Self { filter, ..self }
    }

    /// Makes the whole handshake. The error is the code of the refusal.
    pub fn connect(self, server: SocketAddr) -> Result<(), u32> {
        self.finish(server).map(drop)
    }

    /// Opens a lasting connection: returns its socket, and the server's socket id.
    pub fn open(self, server: SocketAddr) -> (UdpSocket, u32) {
        self.finish(server).unwrap()
    }

    /// Sends `count` conclusions without waiting for answers; returns how many were sent.
    pub fn conclusions(self, server: SocketAddr, count: u64) -> u64 {
        let socket = self.socket(server);
        let conclusion = self.conclusion(&socket);
        (0..count).map(|_| u64::from(socket.send(&conclusion).is_ok())).sum()
    }

    /// Sends conclusions of `count` callers from a single socket, each with its own socket id and stream, without
    /// waiting for answers. Returns how many were sent.
    pub fn crowd(self, server: SocketAddr, count: u32) -> u64 {
        let socket = self.socket(server);
        let cookie = self.cookie(&socket);
        let mut sent = 0;
        for caller in 0..count {
            let stream = format!("{}{caller}", self.stream_id);
            let mut datagram = Knock { stream_id: &stream, ..self }.conclusion_with(cookie);
            // The seventh word of the handshake is the socket id of the caller.
            datagram[16 + 6 * 4..][..4].copy_from_slice(&(caller + 1).to_be_bytes());
            sent += u64::from(socket.send(&datagram).is_ok());
            // The pause lets the server read the datagrams.
            if caller % 100 == 99 {
                std::thread::sleep(ms(5));
            }
        }
        sent
    }

    fn finish(self, server: SocketAddr) -> Result<(UdpSocket, u32), u32> {
        let socket = self.socket(server);
        let conclusion = self.conclusion(&socket);
        let answer = exchange(&socket, &conclusion);
        match word(&answer, 9) {
            CONCLUSION => Ok((socket, word(&answer, 10))),
            refused => Err(refused - REFUSED),
        }
    }

    fn socket(self, server: SocketAddr) -> UdpSocket {
        let local: SocketAddr = match (self.from, server.is_ipv4()) {
            (Some(from), _) => (from, 0).into(),
            (None, true) => "127.0.0.1:0".parse().unwrap(),
            (None, false) => "[::1]:0".parse().unwrap(),
        };
        let socket = UdpSocket::bind(local).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(ms(500))).unwrap();
        socket
    }

    /// Asks for the cookie, which proves the address, and returns a conclusion with it.
    fn conclusion(self, socket: &UdpSocket) -> Vec<u8> {
        self.conclusion_with(self.cookie(socket))
    }

    fn cookie(self, socket: &UdpSocket) -> u32 {
        let answer = exchange(socket, &induction());
        assert_eq!(
            (word(&answer, 5) & 0xffff, word(&answer, 9)),
            (0x4a17, INDUCTION),
            "the induction's answer"
        );
        assert!(answer.len() <= 64, "it is larger than the question");
        word(&answer, 11)
    }

    fn conclusion_with(self, cookie: u32) -> Vec<u8> {
        let (flags, mut extensions) = (5 | u32::from(self.wrong_key) << 1, Vec::new());
        // The first extension: SRT 1.5.1 with all features, and a latency of 120 ms in each direction.
        extension(&mut extensions, 1, &[0x0001_0501, 0xbf, 120 << 16 | 120]);
        if self.wrong_key {
            // Key material: AES-CTR, the even key, a salt of 16 bytes, a wrapped key of 24 bytes.
            let key = [0x1220_2901, 0, 0x0200_0200, 0x0000_0404];
            extension(&mut extensions, 3, &[&key[..], &[0x5a5a_5a5a; 10]].concat());
        }
        extension(&mut extensions, 5, &text(self.stream_id));
        if !self.filter.is_empty() {
            extension(&mut extensions, 7, &text(self.filter));
        }
        let cipher = if self.wrong_key { 2 << 16 } else { 0 };
        handshake(5, cipher | flags, CONCLUSION, cookie, &extensions)
    }
}

/// Returns the first request of a caller.
pub fn induction() -> Vec<u8> {
    handshake(4, 2, INDUCTION, 0, &[])
}

/// Returns a shutdown for a socket.
pub fn goodbye(socket: u32) -> Vec<u8> {
    control(SHUTDOWN, socket, &[0])
}

/// Sends a handshake again until it is answered, because libsrt binds its socket before it listens. On a busy
/// machine, a late answer to a repeated induction may follow, which is not taken for the answer to a conclusion.
fn exchange(socket: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 1500];
    for _ in 0..TRIES {
        socket.send(datagram).unwrap();
        while let Ok(length) = socket.recv(&mut buffer) {
            let is_late = word(datagram, 9) == CONCLUSION && word(&buffer, 9) == INDUCTION;
            if word(&buffer, 0) >> 16 == u32::from(HANDSHAKE) && length >= 64 && !is_late {
                return buffer[..length].to_vec();
            }
        }
    }
    panic!("no answer to a handshake");
}

fn handshake(version: u32, fields: u32, request: u32, cookie: u32, extensions: &[u8]) -> Vec<u8> {
    let first_sequence = 1000;
    let body =
        [version, fields, first_sequence, 1500, 8192, request, OUR_SOCKET, cookie, 0x7f00_0001, 0, 0, 0];
    let mut bytes = control(HANDSHAKE, 0, &body);
    bytes.extend_from_slice(extensions);
    bytes
}

fn control(kind: u16, to: u32, body: &[u32]) -> Vec<u8> {
    let head = [u32::from(kind) << 16, 0, 0, to];
    head.iter().chain(body).flat_map(|word| word.to_be_bytes()).collect()
}

fn extension(out: &mut Vec<u8>, kind: u32, words: &[u32]) {
    let head = kind << 16 | words.len() as u32;
    out.extend([head].iter().chain(words).flat_map(|word| word.to_be_bytes()));
}

/// Returns the words of a text, each with its bytes swapped.
fn text(text: &str) -> Vec<u32> {
    let swapped = |chunk: &[u8]| {
        let mut bytes = [0; 4];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(bytes)
    };
    text.as_bytes().chunks(4).map(swapped).collect()
}

fn word(datagram: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(datagram[index * 4..][..4].try_into().unwrap())
}

/// Returns whether a packet of data is encrypted; `None` for other packets.
pub fn data_is_encrypted(datagram: &[u8]) -> Option<bool> {
    (datagram.len() >= 16 && datagram[0] & 0x80 == 0).then(|| datagram[4] & 0x18 != 0)
}

/// Returns the id of the socket to which a datagram is addressed; 0 if the datagram is too short.
pub fn socket_id(datagram: &[u8]) -> u32 {
    if datagram.len() < 16 { 0 } else { word(datagram, 3) }
}

/// Returns packets that a third party might send to a connection's socket: a shutdown, a keep-alive, an acknowledgement
/// far in the future, and data.
pub fn forged(socket: u32) -> [Vec<u8>; 4] {
    let data: Vec<u8> =
        [1001, 0xe000_0001, 0, socket].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    [
        control(SHUTDOWN, socket, &[0]),
        control(KEEPALIVE, socket, &[0]),
        control(0x8002, socket, &[0x7fff_0000, 100, 100, 8192, 100, 100, 100]),
        [data, vec![0x47; 1316]].concat(),
    ]
}
