//! Cost of a packet of 1200 bytes, compared with the cost of the primitives alone for the same data:
//!
//! ```text
//! cargo bench -p millstream-srtp --bench packet
//! ```
//!
//! Rounds alternate between the two measurements, so that a busy machine affects both. Values are the minimum,
//! median and maximum of the rounds.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a bench has a clock, prints, and stops at what it did not expect"
)]

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use rtp::{Header, PayloadType, SequenceNumber, Ssrc};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use wire::Datagrams;

const HEAD: usize = 12;
const PACKET: usize = 1200;
/// Number of packets per measurement: as many as fit into a single send.
const BATCH: usize = 50;
const ROUNDS: usize = 400;

fn main() {
    for profile in [Profile::AeadAes128Gcm, Profile::AeadAes256Gcm, Profile::Aes128CmHmacSha1_80] {
        println!("{profile:?}, {PACKET} bytes, ns a packet: min/median/max of {ROUNDS} rounds of {BATCH}");
        let mut bench = Bench::new(profile);
        // Runs each measurement once to warm up pages, caches and tables.
        bench.protect();
        bench.bare_seal();
        report("protect", (0..ROUNDS).map(|_| (bench.protect(), bench.bare_seal())));
        report("unprotect", (0..ROUNDS).map(|_| (bench.unprotect(), bench.bare_open())));
        report("seal shared", (0..ROUNDS).map(|_| (bench.seal_shared(), bench.bare_seal_apart())));
        report("rtcp out + in", (0..ROUNDS).map(|_| (bench.rtcp(), f64::NAN)));
    }
}

fn report(what: &str, rounds: impl Iterator<Item = (f64, f64)>) {
    let (mut ours, mut bare): (Vec<f64>, Vec<f64>) = rounds.unzip();
    ours.sort_by(f64::total_cmp);
    bare.sort_by(f64::total_cmp);
    let middle = ROUNDS / 2;
    print!("  {what:14} {:6.0}/{:6.0}/{:6.0}", ours[0], ours[middle], ours[ROUNDS - 1]);
    if bare[middle].is_nan() {
        // There is no primitive to compare with.
        return println!();
    }
    println!(
        "   bare {:6.0}/{:6.0}/{:6.0}   ratio of minima {:.3}, of medians {:.3}",
        bare[0],
        bare[middle],
        bare[ROUNDS - 1],
        ours[0] / bare[0],
        ours[middle] / bare[middle]
    );
}

/// Cryptographic primitives alone, with keys of the same lengths.
enum Bare {
    Gcm(LessSafeKey),
    Counter(Box<EncryptingKey>, Box<hmac::Key>),
}

impl Bare {
    fn new(profile: Profile) -> Self {
        let gcm =
            |algorithm, key: &[u8]| Self::Gcm(LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap()));
        match profile {
            Profile::AeadAes128Gcm => gcm(&AES_128_GCM, &[1; 16]),
            Profile::AeadAes256Gcm => gcm(&AES_256_GCM, &[1; 32]),
            Profile::Aes128CmHmacSha1_80 => Self::Counter(
                Box::new(EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, &[1; 16]).unwrap()).unwrap()),
                Box::new(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &[2; 20])),
            ),
        }
    }

    fn tag_bytes(&self) -> usize {
        match self {
            Self::Gcm(_) => 16,
            Self::Counter(..) => 10,
        }
    }

    /// Encrypts `packet` except for its last bytes, which receive the tag.
    fn seal(&self, nonce: u64, packet: &mut [u8]) {
        let (whole, tag) = packet.split_at_mut(PACKET);
        let (head, body) = whole.split_at_mut(HEAD);
        match self {
            Self::Gcm(key) => {
                let made = key.seal_in_place_separate_tag(nonce_of(nonce), Aad::from(&*head), body).unwrap();
                tag.copy_from_slice(made.as_ref());
            }
            Self::Counter(key, mac) => {
                counter(key, nonce, body);
                tag.copy_from_slice(&sign(mac, whole)[..10]);
            }
        }
    }

    fn open(&self, nonce: u64, packet: &mut [u8]) {
        let (whole, tag) = packet.split_at_mut(PACKET);
        match self {
            Self::Gcm(key) => {
                let (head, body) = whole.split_at_mut(HEAD);
                key.open_in_place_separate_tag(nonce_of(nonce), Aad::from(&*head), tag, body).unwrap();
            }
            Self::Counter(key, mac) => {
                assert!(sign(mac, whole)[..10] == *tag);
                counter(key, nonce, &mut whole[HEAD..]);
            }
        }
    }

    fn seal_apart(&self, nonce: u64, head: &[u8], clear: &[u8], out: &mut [u8]) {
        out[..HEAD].copy_from_slice(head);
        match self {
            Self::Gcm(key) => {
                let (body, tag) = out[HEAD..].split_at_mut(clear.len());
                key.seal_out_of_place_scatter(nonce_of(nonce), Aad::from(head), clear, body, &[], tag)
                    .unwrap();
            }
            Self::Counter(..) => {
                out[HEAD..PACKET].copy_from_slice(clear);
                self.seal(nonce, out);
            }
        }
    }
}

fn nonce_of(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn counter(key: &EncryptingKey, number: u64, body: &mut [u8]) {
    let initial = (u128::from(number) << 16).to_be_bytes();
    key.less_safe_encrypt(body, EncryptionContext::Iv128(FixedLength::from(initial))).unwrap();
}

fn sign(key: &hmac::Key, packet: &[u8]) -> [u8; 20] {
    let mut context = hmac::Context::with_key(key);
    context.update(packet);
    context.update(&[0; 4]);
    context.sign().as_ref().try_into().unwrap()
}

struct Bench {
    bare: Bare,
    outbound: Outbound,
    inbound: Inbound,
    number: u16,
    nonce: u64,
    packets: Vec<Vec<u8>>,
    shared: Vec<u8>,
    out: Datagrams,
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let (client, _) = MasterKey::of_dtls(profile, &vec![9; profile.keying_bytes()]).unwrap();
        let bare = Bare::new(profile);
        let packets = (0..BATCH).map(|_| vec![0x80; PACKET + bare.tag_bytes()]).collect();
        Self {
            bare,
            outbound: Outbound::new(&client).unwrap(),
            inbound: Inbound::new(&client).unwrap(),
            number: 0,
            nonce: 0,
            packets,
            shared: vec![5; PACKET - HEAD],
            out: Datagrams::new(),
        }
    }

    fn header(&mut self) -> Header<'static> {
        self.number = self.number.wrapping_add(1);
        Header {
            marker: false,
            payload_type: PayloadType::new(96).unwrap(),
            sequence_number: SequenceNumber(self.number),
            timestamp: 7,
            ssrc: Ssrc(9),
            csrcs: rtp::Csrcs::default(),
            extension: None,
        }
    }

    /// Prepares unencrypted packets with the next sequence numbers.
    fn refill(&mut self) {
        for at in 0..BATCH {
            let header = self.header();
            let packet = &mut self.packets[at];
            packet.clear();
            header.write(packet);
            packet.resize(PACKET, 5);
        }
    }

    fn protect(&mut self) -> f64 {
        self.refill();
        let start = Instant::now();
        for packet in &mut self.packets {
            self.outbound.protect(packet).unwrap();
        }
        per_packet(start)
    }

    fn unprotect(&mut self) -> f64 {
        self.protect();
        let start = Instant::now();
        for packet in &mut self.packets {
            black_box(self.inbound.unprotect(packet).unwrap());
        }
        per_packet(start)
    }

    fn bare_seal(&mut self) -> f64 {
        self.refill();
        for packet in &mut self.packets {
            packet.resize(PACKET + self.bare.tag_bytes(), 0);
        }
        let start = Instant::now();
        for packet in &mut self.packets {
            self.nonce += 1;
            self.bare.seal(self.nonce, packet);
        }
        per_packet(start)
    }

    fn bare_open(&mut self) -> f64 {
        let first = self.nonce;
        self.bare_seal();
        let start = Instant::now();
        for (nonce, packet) in (first + 1..).zip(&mut self.packets) {
            self.bare.open(nonce, packet);
        }
        per_packet(start)
    }

    fn seal_shared(&mut self) -> f64 {
        self.out.clear();
        let headers: Vec<Header<'static>> = (0..BATCH).map(|_| self.header()).collect();
        let start = Instant::now();
        for header in &headers {
            self.outbound.seal(header, &self.shared, &mut self.out).unwrap();
        }
        let time = per_packet(start);
        black_box(self.out.bytes());
        time
    }

    fn bare_seal_apart(&mut self) -> f64 {
        self.refill();
        for packet in &mut self.packets {
            packet.resize(PACKET + self.bare.tag_bytes(), 0);
        }
        let start = Instant::now();
        for packet in &mut self.packets {
            self.nonce += 1;
            self.bare.seal_apart(self.nonce, &[0x80; HEAD], &self.shared, packet);
        }
        per_packet(start)
    }

    /// Measures a report of 52 bytes in both directions. Includes preparing the keys, which RTCP does for each
    /// packet.
    fn rtcp(&mut self) -> f64 {
        let report = [&[0x80, 200, 0, 12, 0, 0, 0, 9][..], &[1; 44]].concat();
        let mut reports: Vec<Vec<u8>> = (0..BATCH).map(|_| report.clone()).collect();
        let start = Instant::now();
        for packet in &mut reports {
            self.outbound.protect_rtcp(packet).unwrap();
            self.inbound.unprotect_rtcp(packet).unwrap();
        }
        per_packet(start)
    }
}

fn per_packet(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / BATCH as f64
}
