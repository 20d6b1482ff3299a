//! Control packets of SRT as a peer that lies sends them, or somebody on its path: well-formed, with any numbers in them.

use std::num::NonZeroU32;

use crypto::{pbkdf2_hmac_sha1, wrap_key};
use srt::packet::{Control, Packet};

/// The passphrase of a secured connection; a peer that lies knows it.
pub(crate) const PASSPHRASE: &str = "0123456789";
/// Of the key derivation (draft-sharabayko-srt-01 §6.1.4).
const ROUNDS: u32 = 2048;
/// The first byte of a number that is far from all that were seen; four more follow.
const FAR: u8 = 0x80;
/// The byte that makes a packet without numbers of its own a parity of a packet filter.
const PARITY: u8 = 7;
/// Words of a report of losses.
const LOSSES_MAX: u8 = 16;
/// Figures of an acknowledgement that may matter: nothing, little, usual ones, too much.
const FIGURES: [u32; 8] = [0, 1, 2, 500, 8192, 100_000, 1 << 31, u32::MAX];

/// The numbers that an observer of the connection knows.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    data: u32,
    ack: u32,
    timestamp: u32,
    key_message: Vec<u8>,
}

/// A packet, and whether payload may come to harm by it: keys and parity can do that.
pub(crate) struct Forged {
    pub(crate) datagram: Vec<u8>,
    pub(crate) harms_payload: bool,
}

impl Seen {
    /// A datagram of either end passes.
    pub(crate) fn note(&mut self, datagram: &[u8]) {
        match Packet::read(datagram) {
            Ok(Packet::Data(head, _)) => (self.data, self.timestamp) = (head.seq.value(), head.timestamp),
            Ok(Packet::Control { control: Control::Ack(number, _), .. }) => self.ack = number,
            Ok(Packet::Control { control: Control::User(_, body), .. }) => self.key_message = body.to_vec(),
            _ => {}
        }
    }

    /// A packet of this kind to a socket, with the numbers that the next bytes tell.
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
            // Parity; keep-alives, warnings, a shutdown, errors, what nobody knows.
            _ => match next(bytes) {
                PARITY => return Forged { datagram: self.parity(timestamp, to, bytes), harms_payload: true },
                which => ([1, 4, 5, 8, 9, 0x7ffe][usize::from(which % 6)], number(bytes, 0), words([0])),
            },
        };
        // A subtype is in the lower half of the first word, and the kind in its upper one.
        let first = 0x8000_0000 | if kind > 0xffff { kind } else { kind << 16 };
        let datagram = [words([first, info, timestamp, to]), body].concat();
        Forged { datagram, harms_payload }
    }

    /// Parity of a packet filter: any group, any recovery of key flags and length, any payload.
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
            // A set high bit begins a range.
            if next(bytes) & 1 == 0 { near } else { near | 0x8000_0000 }
        });
        words.flat_map(u32::to_be_bytes).collect()
    }

    fn acknowledgement(&self, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
        let mut body = words([number(bytes, self.data)]);
        // A small one ends behind the room (draft-sharabayko-srt-01 §3.2.4).
        let count = if next(bytes) & 1 == 0 { 6 } else { 3 };
        let figures = (0..count).map(|_| FIGURES[usize::from(next(bytes) % 8)]);
        body.extend(figures.flat_map(u32::to_be_bytes));
        body
    }

    /// Key material: what was seen, with a changed bit; what opens, with keys of its own; what is none.
    fn keys(&self, bytes: &mut impl Iterator<Item = u8>) -> (Vec<u8>, bool) {
        let (kind, value) = (next(bytes), next(bytes));
        match kind % 4 {
            0 | 1 => {
                let mut message = self.key_message.clone();
                let at = usize::from(kind >> 1) % message.len().max(1);
                if let Some(byte) = message.get_mut(at) {
                    *byte ^= 1 << (value % 8);
                }
                // Half of the salt only makes counters, and nothing protects it.
                (message, (16..24).contains(&at))
            }
            2 => (lie(kind, value), true),
            _ => (vec![value; usize::from(kind)], false),
        }
    }
}

/// Key material of our own making that the passphrase opens.
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

/// A number near one that was seen, or any.
fn number(bytes: &mut impl Iterator<Item = u8>, near: u32) -> u32 {
    match next(bytes) {
        FAR => u32::from_be_bytes([(); 4].map(|()| next(bytes))),
        step => near.wrapping_add_signed(i32::from(step.cast_signed())),
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
