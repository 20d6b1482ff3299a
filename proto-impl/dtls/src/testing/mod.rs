//! Helpers for tests of several modules.

use std::sync::{Arc, LazyLock};

use crypto::Seed;

use crate::Identity;

/// A certificate made by OpenSSL with an RSA key of 2048 bits.
pub(crate) const RSA_CERTIFICATE: &[u8] = include_bytes!("rsa_certificate.der");
/// Private key of the RSA certificate.
pub(crate) const RSA_KEY: &[u8] = include_bytes!("rsa_key.der");

static IDENTITIES: LazyLock<[Arc<Identity>; 3]> = LazyLock::new(|| {
    let own = |number| Arc::new(Identity::self_signed(&Seed::from_number(number)).unwrap());
    [Arc::new(Identity::new(RSA_CERTIFICATE, RSA_KEY).unwrap()), own(1), own(2)]
});

/// Returns a test identity: number 0 uses RSA, 1 and 2 use P-256.
pub(crate) fn identity(number: usize) -> Arc<Identity> {
    Arc::clone(&IDENTITIES[number])
}
