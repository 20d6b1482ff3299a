//! SRT control packets of a hostile peer, or of somebody on the path: well-formed, but with arbitrary numbers.

use std::num::NonZeroU32;

use crypto::{pbkdf2_hmac_sha1, wrap_key};
use srt::packet::{Control, Packet};

/// The passphrase of a secured connection, which a hostile peer knows.
pub(crate) const PASSPHRASE: &str = "0123456789";
/// Number of rounds of the key derivation (draft-sharabayko-srt-01 §6.1.4).
const ROUNDS: u32 = 2048;
/// Input byte that announces a number far from all seen ones; the number follows in four bytes.
const FAR: u8 = 0x80;
/// Input byte that turns a packet without numbers of its own into a parity packet of a packet filter.
const PARITY: u8 = 7;
/// Maximum number of words in a loss report.
const LOSSES_MAX: u8 = 16;
/// Values for the fields of an acknowledgement: zero, small, usual and excessive ones.
const FIGURES: [u32; 8] = [0, 1, 2, 500, 8192, 100_000, 1 << 31, u32::MAX];

/// The numbers that an observer of the connection knows.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    data: u32,
    ack: u32,
    timestamp: u32,
    key_message: Vec<u8>,
}

/// A forged packet. `harms_payload` is true if it may spoil payload, as keys and parity can.
pub(crate) struct Forged {
    pub(crate) datagram: Vec<u8>,
    pub(crate) harms_payload: bool,
}

impl Seen {
    /// Notes the numbers in a datagram of either end.
    pub(crate) fn note(&mut self, datagram: &[u8]) {
        match Packet::read(datagram) {
            Ok(Packet::Data(head, _)) => (self.data, self.timestamp) = (head.seq.value(), head.timestamp),
            Ok(Packet::Control { control: Control::Ack(number, _), .. }) => self.ack = number,
            Ok(Packet::Control { control: Control::User(_, body), .. }) => self.key_message = body.to_vec(),
            _ => {}
        }
    }

    /// Forges a packet of this kind to a socket. The numbers in it follow from the next input bytes.
    pub(crate) fn forge(&self, kind: u8, to: u32, bytes: &mut impl Iterator<Item = u8>) -> Forged {
        let timestamp = number(bytes, self.timestamp);
        let mut harms_payload = false;
        let (kind, info, body) = match kind % 8 {
            0 => (3, 0, self.losses(bytes)),
            1 => (2, number(bytes, self.ack), self.acknowledgement(bytes)),
            2 => (2, 0, words([number(bytes, self.data)])),
            3 => (6, number(bytes, self.ack), words([0])),
            4 => {
                let (message, first) = (number(bytes, 1), number(bytes, self.data));
                (7, message, words([first, number(bytes, first)]))
            }
            5 => {
                let body;
                (body, harms_payload) = self.keys(bytes);
                (0x7fff_0003, 0, body)
            }
            6 => (0x7fff_0004, 0, self.keys(bytes).0),
            // Parity, or one of: keep-alive, congestion warning, shutdown, errors, an unknown type.
            _ => match next(bytes) {
                PARITY => return Forged { datagram: self.parity(timestamp, to, bytes), harms_payload: true },
                which => ([1, 4, 5, 8, 9, 0x7ffe][usize::from(which % 6)], number(bytes, 0), words([0])),
            },
        };
        // The first word has the type in its upper half and the subtype in its lower half.
        let first = 0x8000_0000 | if kind > 0xffff { kind } else { kind << 16 };
        let datagram = [words([first, info, timestamp, to]), body].concat();
        Forged { datagram, harms_payload }
    }

    /// Forges a parity packet of a packet filter: any group, any recovery data for key flags and length, any
    /// payload.
    fn parity(&self, timestamp: u32, to: u32, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
        let seq = number(bytes, self.data) & 0x7fff_ffff;
        let mut datagram = words([seq, 0xc000_0000, timestamp, to]);
        datagram.extend([(); 4].map(|()| next(bytes)));
        let (length, fill) = (usize::from(next(bytes)) * 8, next(bytes));
        datagram.resize(16 + length, fill);
        datagram
    }

    fn losses(&self, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
        let count = next(bytes) % LOSSES_MAX;
        let mut near = self.data;
        let words = (0..count).map(|_| {
            near = number(bytes, near);
            // A high bit that is set begins a range of lost packets.
            if next(bytes) & 1 == 0 { near } else { near | 0x8000_0000 }
        });
        words.flat_map(u32::to_be_bytes).collect()
    }

    fn acknowledgement(&self, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
        let mut body = words([number(bytes, self.data)]);
        // A small acknowledgement ends after the available buffer size (draft-sharabayko-srt-01 §3.2.4).
        let count = if next(bytes) & 1 == 0 { 6 } else { 3 };
        let figures = (0..count).map(|_| FIGURES[usize::from(next(bytes) % 8)]);
        body.extend(figures.flat_map(u32::to_be_bytes));
        body
    }

    /// Forges key material: seen material with one bit changed; material with other keys that the passphrase
    /// opens; or garbage.
    fn keys(&self, bytes: &mut impl Iterator<Item = u8>) -> (Vec<u8>, bool) {
        let (kind, value) = (next(bytes), next(bytes));
        match kind % 4 {
            0 | 1 => {
                let mut message = self.key_message.clone();
                let at = usize::from(kind >> 1) % message.len().max(1);
                if let Some(byte) = message.get_mut(at) {
                    *byte ^= 1 << (value % 8);
                }
                // Half of the salt is used only for counters, and nothing protects it.
                (message, (16..24).contains(&at))
            }
            2 => (lie(kind, value), true),
            _ => (vec![value; usize::from(kind)], false),
        }
    }
}

/// Makes key material with keys of our own that the passphrase opens.
fn lie(kind: u8, value: u8) -> Vec<u8> {
    let length = [16, 24, 32][usize::from(kind >> 4) % 3];
    let which = 1 + kind / 4 % 3;
    let salt = [value; 16];
    let mut kek = vec![0; length];
    let rounds = NonZeroU32::new(ROUNDS).expect("it is not zero");
    pbkdf2_hmac_sha1(PASSPHRASE.as_bytes(), &salt[8..], rounds, &mut kek);
    let keys = vec![value; length * if which == 3 { 2 } else { 1 }];
    let wrapped = wrap_key(&kek, &keys).expect("the length is one of a key");
    let words = u8::try_from(length / 4).expect("it is small");
    let head = [0x12, 0x20, 0x29, which, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 4, words];
    [&head[..], &salt, &wrapped].concat()
}

fn next(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    bytes.next().unwrap_or(0)
}

/// Returns a number close to `near`, which was seen, or any number.
fn number(bytes: &mut impl Iterator<Item = u8>, near: u32) -> u32 {
    match next(bytes) {
        FAR => u32::from_be_bytes([(); 4].map(|()| next(bytes))),
        step => near.wrapping_add_signed(i32::from(step.cast_signed())),
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
