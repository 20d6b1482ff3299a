//! Compares the two providers: for the same keys and inputs, valid and damaged, they give the same outputs and the same
//! refusals. Inputs are drawn from a seed.

use std::num::NonZeroU32;

use super::aws_lc::AwsLc;
use super::rust_crypto::RustCrypto;
use super::{Aead, Agreement, Cbc, Ctr, HmacSha1, Provider, Signer};
use crate::{AeadAlgorithm, AgreementGroup, Hash, KeyKind, PublicKey, Random, Seed, SignatureAlgorithm};

const ROUNDS: usize = 300;
const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
const AEADS: [AeadAlgorithm; 3] =
    [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305];
const GROUPS: [AgreementGroup; 2] = [AgreementGroup::X25519, AgreementGroup::P256];
/// An RSA key of 2048 bits as PKCS#8.
const RSA_KEY: &[u8] = include_bytes!("rsa_key.der");

/// The inputs of a test.
struct Draw(Random);

impl Draw {
    fn new(test: u64) -> Self {
        Self(Seed::from_number(test).random())
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes);
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(u64::try_from(bound).unwrap())).unwrap()
    }

    /// Bytes of a random length, up to that of a packet.
    fn text(&mut self) -> Vec<u8> {
        let length = self.below(1500);
        self.bytes(length)
    }

    /// The same bytes with one bit changed, one byte missing or one more.
    fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match self.below(4) {
            0 => bytes.truncate(bytes.len().saturating_sub(1)),
            1 => bytes.push(0),
            _ => {
                let at = self.below(bytes.len());
                bytes[at] ^= 1 << self.below(8);
            }
        }
        bytes
    }
}

/// Seals and opens with a provider. Returns the sealed text, the tag, whether they open, and whether other ones do.
fn aead<P: Provider>(
    algorithm: AeadAlgorithm,
    key: &[u8],
    nonce: [u8; 12],
    [associated, text, other_tag]: [&[u8]; 3],
) -> Option<(Vec<u8>, [u8; 16], bool, bool)> {
    let key = P::Aead::new(algorithm, key)?;
    let mut sealed = text.to_vec();
    let tag = key.seal(nonce, associated, &mut sealed);
    let mut opened = sealed.clone();
    let opens = key.open(nonce, associated, &tag, &mut opened) && opened == text;
    let opens_other = key.open(nonce, associated, other_tag, &mut opened);
    Some((sealed, tag, opens, opens_other))
}

#[test]
fn the_aeads_agree() {
    let mut draw = Draw::new(1);
    for round in 0..ROUNDS {
        let algorithm = AEADS[round % 3];
        let key_bytes = [algorithm.key_bytes(), draw.below(40)][usize::from(round % 10 == 9)];
        let (key, nonce, associated, text) = (draw.bytes(key_bytes), draw.array(), draw.text(), draw.text());
        let other_tag = draw.bytes([16, round % 20][round % 2]);
        let inputs: [&[u8]; 3] = [&associated, &text, &other_tag];
        let ours = aead::<AwsLc>(algorithm, &key, nonce, inputs);
        assert_eq!(ours, aead::<RustCrypto>(algorithm, &key, nonce, inputs), "{round}");
        assert_eq!(ours.is_some(), key.len() == algorithm.key_bytes());
        if let Some((sealed, tag, opens, opens_other)) = ours {
            assert!(opens && !opens_other);
            // RustCrypto opens the text that aws-lc sealed.
            let mut text = sealed;
            let key = <RustCrypto as Provider>::Aead::new(algorithm, &key).unwrap();
            assert!(key.open(nonce, &associated, &tag, &mut text));
        }
    }
}

#[test]
fn counter_mode_agrees_and_the_counter_carries() {
    fn apply<P: Provider>(key: &[u8], initial: [u8; 16], mut text: Vec<u8>) -> Option<Vec<u8>> {
        P::Ctr::new(key)?.apply(initial, &mut text);
        Some(text)
    }
    let mut draw = Draw::new(2);
    for round in 0..ROUNDS {
        let key_bytes = [16, 24, 32, round % 40][round % 4];
        let (key, text) = (draw.bytes(key_bytes), draw.text());
        let mut initial: [u8; 16] = draw.array();
        if round % 3 == 0 {
            initial[round % 16..].fill(0xff);
        }
        let ours = apply::<AwsLc>(&key, initial, text.clone());
        assert_eq!(ours, apply::<RustCrypto>(&key, initial, text), "{round}");
        assert_eq!(ours.is_some(), [16, 24, 32].contains(&key.len()));
    }
}

#[test]
fn block_chaining_agrees() {
    fn apply<C: Cbc>(key: &[u8], initial: [u8; 16], text: &[u8], cut: usize) -> Option<Vec<u8>> {
        let mut cipher = C::new(key, initial)?;
        let mut text = text.to_vec();
        let (head, rest) = text.split_at_mut(cut * 16);
        assert!(cipher.apply(head) && cipher.apply(rest));
        Some(text)
    }
    let mut draw = Draw::new(3);
    for round in 0..ROUNDS {
        let key_bytes = [16, 24, 32, round % 40][round % 4];
        let blocks = draw.below(40);
        let (key, initial, text) = (draw.bytes(key_bytes), draw.array(), draw.bytes(blocks * 16));
        let cut = draw.below(blocks + 1);
        let sealed = apply::<<AwsLc as Provider>::CbcSealer>(&key, initial, &text, cut);
        assert_eq!(sealed, apply::<<RustCrypto as Provider>::CbcSealer>(&key, initial, &text, cut));
        let opened = apply::<<AwsLc as Provider>::CbcOpener>(&key, initial, &text, cut);
        assert_eq!(opened, apply::<<RustCrypto as Provider>::CbcOpener>(&key, initial, &text, cut));
    }
}

#[test]
fn hashes_and_what_is_made_of_them_agree() {
    fn all<P: Provider>(hash: Hash, key: &[u8], text: &[u8], length: usize) -> Vec<Vec<u8>> {
        let (mut expanded, mut prf) = (vec![0; length], vec![0; length]);
        let secret = [key, &[1]].concat();
        let parts: [&[u8]; 3] = [text, b"", b"more"];
        assert!(P::expand(hash, &key[..key.len().min(64)], &parts, &mut expanded));
        assert!(P::tls12_prf(hash, &secret, b"label", text, &mut prf));
        let sha1 = P::HmacSha1::new(key);
        vec![
            P::digest(hash, text),
            P::mac(hash, key, &parts),
            expanded,
            prf,
            sha1.sign(&parts).to_vec(),
            sha1.sign(&[]).to_vec(),
        ]
    }
    let mut draw = Draw::new(4);
    for round in 0..ROUNDS {
        let (key_bytes, length) = (draw.below(200), draw.below(600));
        let (key, text) = (draw.bytes(key_bytes), draw.text());
        let hash = HASHES[round % 3];
        assert_eq!(all::<AwsLc>(hash, &key, &text, length), all::<RustCrypto>(hash, &key, &text, length));
    }
    for hash in HASHES {
        let mut long = vec![0; hash.bytes() * 255 + 1];
        assert!(!AwsLc::expand(hash, &[1; 32], &[], &mut long));
        assert!(!RustCrypto::expand(hash, &[1; 32], &[], &mut long));
        long.pop();
        assert!(RustCrypto::expand(hash, &[1; 32], &[], &mut long));
    }
}

#[test]
fn keys_from_passwords_masks_and_wrapped_keys_agree() {
    fn unwrap<P: Provider>(kek: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; wrapped.len() - 8];
        P::unwrap_key(kek, wrapped, &mut out).then_some(out)
    }
    let mut draw = Draw::new(5);
    for round in 0..ROUNDS {
        let (length, iterations) =
            (1 + draw.below(64), NonZeroU32::new(u32::try_from(1 + round % 40).unwrap()).unwrap());
        let (secret, salt, mut ours, mut theirs) =
            (draw.text(), draw.text(), vec![0; length], vec![0; length]);
        AwsLc::pbkdf2_hmac_sha1(&secret, &salt, iterations, &mut ours);
        RustCrypto::pbkdf2_hmac_sha1(&secret, &salt, iterations, &mut theirs);
        assert_eq!(ours, theirs);

        let algorithm = AEADS[round % 3];
        let (key, mut sample) = (draw.bytes(algorithm.key_bytes()), draw.array::<16>());
        if round % 5 == 0 {
            // The number of the last block of ChaCha20.
            sample[..4].fill(0xff);
        }
        let mask = AwsLc::header_mask(algorithm, &key, &sample);
        assert_eq!((mask, mask.is_some()), (RustCrypto::header_mask(algorithm, &key, &sample), true));

        let kek_bytes = [16, 24, 32, round % 40][round % 4];
        let (kek, key) = (draw.bytes(kek_bytes), draw.bytes(16 + round % 7 * 8));
        let (mut ours, mut theirs) = (vec![0; key.len() + 8], vec![0; key.len() + 8]);
        let done = AwsLc::wrap_key(&kek, &key, &mut ours);
        assert_eq!((done, &ours), (RustCrypto::wrap_key(&kek, &key, &mut theirs), &theirs));
        let mut damaged = ours.clone();
        let at = draw.below(damaged.len());
        damaged[at] ^= 4;
        for wrapped in [&ours, &damaged] {
            let unwrapped = unwrap::<AwsLc>(&kek, wrapped);
            assert_eq!(unwrapped, unwrap::<RustCrypto>(&kek, wrapped));
            assert_eq!(unwrapped.as_ref() == Some(&key), done && *wrapped == ours);
        }
    }
}

#[test]
fn agreements_agree_and_refuse_the_same() {
    let secret = |derived: &[u8]| derived.to_vec();
    let mut draw = Draw::new(6);
    for round in 0..ROUNDS {
        let group = GROUPS[round % 2];
        let private = match round % 20 {
            // Zero, and above the order of the group.
            18 => vec![0; 32],
            19 => vec![0xff; 32],
            16 => draw.bytes(31),
            _ => draw.bytes(32),
        };
        let ours = <AwsLc as Provider>::Agreement::from_bytes(group, &private);
        let theirs = <RustCrypto as Provider>::Agreement::from_bytes(group, &private);
        assert_eq!(ours.is_some(), theirs.is_some(), "{group:?} {private:?}");
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        assert_eq!(ours.public(), theirs.public());

        let peer = <RustCrypto as Provider>::Agreement::from_bytes(group, &draw.bytes(32)).unwrap();
        let public = peer.public();
        let agreed = ours.agree(&public, secret).unwrap();
        assert_eq!(Some(&agreed), theirs.agree(&public, secret).as_ref());
        assert_eq!(Some(&agreed), peer.agree(&ours.public(), secret).as_ref());
        // A damaged point has the right form and is not on the curve; every string of 32 bytes is one of X25519.
        let mut other = public.clone();
        let at = 1 + draw.below(public.len() - 1);
        other[at] ^= 1 << draw.below(8);
        assert_eq!(ours.agree(&other, secret), theirs.agree(&other, secret));
        let zero = [&public[..public.len() % 2], &[0; 64]].concat();
        let zero = &zero[..public.len()];
        assert_eq!((ours.agree(zero, secret), theirs.agree(zero, secret)), (None, None));
    }
}

/// The `SubjectPublicKeyInfo` of a key.
fn spki(kind: KeyKind, public: &[u8]) -> Vec<u8> {
    let sequence = |content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82], &length[..], content].concat()
    };
    let (algorithm, public): (&[u8], _) = match kind {
        KeyKind::Rsa => (b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00", public),
        KeyKind::P256 | KeyKind::P384 => {
            let header = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
            return [header, public].concat();
        }
    };
    let length = u16::try_from(public.len() + 1).unwrap().to_be_bytes();
    sequence(&[algorithm, &[0x03, 0x82], &length, &[0], public].concat())
}

/// Checks that each provider verifies what the other signs, and that the two refuse the same damaged signatures.
fn check_signatures(pkcs8: &[u8], algorithms: &[SignatureAlgorithm], draw: &mut Draw) {
    let ours = <AwsLc as Provider>::Signer::from_pkcs8(pkcs8).unwrap();
    let theirs = <RustCrypto as Provider>::Signer::from_pkcs8(pkcs8).unwrap();
    assert_eq!((ours.kind(), ours.public()), (theirs.kind(), theirs.public()));
    let (kind, spki) = (ours.kind(), spki(ours.kind(), ours.public()));
    let both = |algorithm, spki: &[u8], message: &[u8], signature: &[u8]| {
        let ours = AwsLc::verify(kind, algorithm, spki, message, signature);
        assert_eq!(ours, RustCrypto::verify(kind, algorithm, spki, message, signature), "{algorithm:?}");
        ours
    };
    for algorithm in algorithms {
        let message = draw.text();
        for signature in [ours.sign(*algorithm, &message), theirs.sign(*algorithm, &message)] {
            let signature = signature.unwrap();
            assert!(both(*algorithm, &spki, &message, &signature), "{algorithm:?}");
            assert!(!both(*algorithm, &spki, b"another", &signature));
            for _ in 0..40 {
                assert!(!both(*algorithm, &spki, &message, &draw.damaged(&signature)));
            }
            for other in algorithms.iter().filter(|other| *other != algorithm) {
                assert!(!both(*other, &spki, &message, &signature));
            }
        }
    }
    for algorithm in HASHES.map(SignatureAlgorithm::Ecdsa) {
        let is_signed = algorithm == SignatureAlgorithm::Ecdsa(Hash::Sha256) && kind == KeyKind::P256;
        assert_eq!(ours.sign(algorithm, b"").is_some(), is_signed);
        assert_eq!(theirs.sign(algorithm, b"").is_some(), is_signed);
    }
}

#[test]
fn signatures_of_ecdsa_agree() {
    let mut draw = Draw::new(7);
    for _ in 0..10 {
        let generated =
            [<AwsLc as Provider>::Signer::generate_p256(), <RustCrypto as Provider>::Signer::generate_p256()];
        for pkcs8 in generated {
            check_signatures(&pkcs8.unwrap(), &[SignatureAlgorithm::Ecdsa(Hash::Sha256)], &mut draw);
        }
    }
}

#[test]
fn signatures_of_rsa_agree() {
    use SignatureAlgorithm::{RsaPkcs1, RsaPss};
    let algorithms: Vec<_> = HASHES.map(RsaPkcs1).into_iter().chain(HASHES.map(RsaPss)).collect();
    check_signatures(RSA_KEY, &algorithms, &mut Draw::new(8));
}

/// Damages each byte of keys: the providers read the same keys.
#[test]
fn damaged_keys_are_judged_alike() {
    let p256 = <AwsLc as Provider>::Signer::generate_p256().unwrap();
    let signer = <AwsLc as Provider>::Signer::from_pkcs8(&p256).unwrap();
    let public = spki(KeyKind::P256, signer.public());
    let algorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
    let signature = signer.sign(algorithm, b"message").unwrap();
    for at in 0..public.len() {
        for bit in 0..8 {
            let mut damaged = public.clone();
            damaged[at] ^= 1 << bit;
            if PublicKey::new(KeyKind::P256, &damaged).is_none() {
                continue;
            }
            let verify = [AwsLc::verify, RustCrypto::verify]
                .map(|verify| verify(KeyKind::P256, algorithm, &damaged, b"message", &signature));
            assert_eq!(verify, [false, false], "{at} {bit}");
        }
    }
    for cut in 0..p256.len() {
        assert!(<AwsLc as Provider>::Signer::from_pkcs8(&p256[..cut]).is_none());
        assert!(<RustCrypto as Provider>::Signer::from_pkcs8(&p256[..cut]).is_none());
    }
}
