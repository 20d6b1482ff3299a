//! Secrets of a session (RFC 5246 §6.3, §8.1; RFC 7627 §4; RFC 5705 §4).

use crypto::tls12_prf;
use zeroize::Zeroizing;

use crate::record::Cipher;
use crate::suite::CipherSuite;
use crate::wipes;

/// Length of the data in a Finished (RFC 5246 §7.4.9).
pub(crate) const VERIFY_BYTES: usize = 12;
/// Maximum size of a key block: two keys and two fixed nonces.
const KEY_BLOCK_BYTES_MAX: usize = 2 * (32 + 12);

/// Sender of a Finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// The master secret and the values used with it. Never printed.
pub(crate) struct Secrets {
    suite: CipherSuite,
    master: Zeroizing<[u8; 48]>,
    /// Random values of the client and of the server, in this order.
    randoms: [u8; 64],
}

const _: fn(&Secrets) = |secrets| wipes(&secrets.master);

impl Secrets {
    /// Derives the secrets from the premaster secret and from the session hash up to `ClientKeyExchange` (RFC
    /// 7627 §4). `None` if a primitive fails.
    pub(crate) fn new(
        suite: CipherSuite,
        shared: &[u8],
        transcript: &[u8],
        client_random: &[u8; 32],
        server_random: &[u8; 32],
    ) -> Option<Self> {
        let session_hash = suite.hash().digest(transcript);
        let mut master = Zeroizing::new([0; 48]);
        tls12_prf(suite.hash(), shared, b"extended master secret", &session_hash, &mut *master)
            .then_some(())?;
        let mut randoms = [0; 64];
        for (to, from) in randoms.iter_mut().zip(client_random.iter().chain(server_random)) {
            *to = *from;
        }
        Some(Self { suite, master, randoms })
    }

    /// Returns the ciphers for the client's and for the server's direction (RFC 5246 §6.3).
    pub(crate) fn ciphers(&self) -> Option<(Cipher, Cipher)> {
        let algorithm = self.suite.aead();
        let (key_bytes, iv_bytes) = (algorithm.key_bytes(), Cipher::iv_bytes(algorithm));
        let (client, server) = self.randoms.split_at_checked(32)?;
        let mut block = Zeroizing::new([0; KEY_BLOCK_BYTES_MAX]);
        let block = block.get_mut(..key_bytes.saturating_add(iv_bytes).saturating_mul(2))?;
        self.prf(b"key expansion", &[server, client].concat(), block).then_some(())?;
        let (client_key, rest) = block.split_at_checked(key_bytes)?;
        let (server_key, rest) = rest.split_at_checked(key_bytes)?;
        let (client_iv, server_iv) = rest.split_at_checked(iv_bytes)?;
        Some((Cipher::new(algorithm, client_key, client_iv)?, Cipher::new(algorithm, server_key, server_iv)?))
    }

    /// Returns the `verify_data` of Finished for a transcript.
    pub(crate) fn verify_data(&self, sender: Sender, transcript: &[u8]) -> Option<[u8; VERIFY_BYTES]> {
        let label: &[u8] = match sender {
            Sender::Client => b"client finished",
            Sender::Server => b"server finished",
        };
        let mut data = [0; VERIFY_BYTES];
        self.prf(label, &self.suite.hash().digest(transcript), &mut data).then_some(data)
    }

    /// Exports keying material (RFC 5705 §4). Returns false if a primitive fails.
    pub(crate) fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> bool {
        let mut seed = self.randoms.to_vec();
        if let Some(context) = context {
            crate::put::vec16(&mut seed, context);
        }
        self.prf(label, &seed, out)
    }

    pub(crate) const fn suite(&self) -> CipherSuite {
        self.suite
    }

    fn prf(&self, label: &[u8], seed: &[u8], out: &mut [u8]) -> bool {
        tls12_prf(self.suite.hash(), &*self.master, label, seed, out)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({:?}, ..)", self.suite)
    }
}
